"""YOLO and Pascal VOC folders become the COCO annotations that they came from, and faults are named."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from mmdet.registry import DATASETS
from mmengine.config import Config
from PIL import Image

from experiments.shapes import make_shapes_dataset
from tests.helpers.configs import ROOT
from tests.helpers.folders import NAMES, with_pentagons, write_voc, write_yolo
from tokennorm.cli.check import main as check
from tokennorm.datasets.coco.folder import find_coco_splits
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.finding import find_splits
from tokennorm.engine.checks import check_config_data
from tokennorm.engine.data import use_data_folder
from tokennorm.messages import UserError
from tokennorm.plan import Plan


@pytest.fixture(scope='module')
def coco(tmp_path_factory):
    root = tmp_path_factory.mktemp('coco') / 'shapes'
    return with_pentagons(make_shapes_dataset(root, num_train=8, num_val=4, image_size=64))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


def by_image(split):
    """Objects of each image: (class, box, polygon, crowd), without ids."""
    names = {category['id']: category['name'] for category in split.content['categories']}
    found = {}
    for image in split.content['images']:
        key = image['file_name'].rpartition('/')[2]
        found[key] = (
            (image['width'], image['height']),
            [
                (names[a['category_id']], a['bbox'], a.get('segmentation'), a['iscrowd'])
                for a in split.content['annotations']
                if a['image_id'] == image['id']
            ],
        )
    return found


def assert_same_objects(actual, expected, with_masks=True):
    actual, expected = by_image(actual), by_image(expected)
    assert set(actual) == set(expected)
    for name, (size, objects) in expected.items():
        assert actual[name][0] == size
        for (label, box, polygons, crowd), other in zip(objects, actual[name][1], strict=True):
            assert (other[0], other[3]) == (label, crowd)
            assert other[1] == pytest.approx(box, abs=0.01)
            if with_masks:
                assert len(other[2]) == 1
                assert other[2][0] == pytest.approx(polygons[0], abs=0.01)


@pytest.mark.parametrize('with_polygons', [False, True])
@pytest.mark.parametrize('images', ['images/{}', '{}/images'])
def test_yolo_gives_the_same_objects(coco, tmp_path, cache, with_polygons, images):
    root = write_yolo(coco, tmp_path / 'yolo', with_polygons, images)
    actual, expected = find_splits(root), find_coco_splits(coco)
    assert list(actual) == ['train', 'val']
    for name, split in actual.items():
        assert split.ann_file.is_relative_to(cache)
        assert json.loads(split.ann_file.read_text()) == split.content
        assert_same_objects(split, expected[name], with_polygons)
        assert [category['name'] for category in split.content['categories']] == NAMES
    found = inspect_splits(actual)
    assert (found.errors, bool(found.mask_errors)) == ([], not with_polygons)


@pytest.mark.parametrize('image_sets', [True, False])
def test_voc_gives_the_same_objects_with_sorted_classes(coco, tmp_path, image_sets):
    actual, expected = find_splits(write_voc(coco, tmp_path / 'voc', image_sets)), find_coco_splits(coco)
    for name, split in actual.items():
        assert [category['name'] for category in split.content['categories']] == sorted(NAMES)
        for image in split.content['images']:
            image['file_name'] = image['file_name'].rpartition('/')[2].removeprefix(f'{name}_')
        assert_same_objects(split, expected[name])
    inspected = inspect_splits(find_splits(tmp_path / 'voc'))
    assert (inspected.errors, inspected.mask_errors) == ([], [])


@pytest.mark.parametrize('difficult', ['1', 'True'])
def test_voc_details(tmp_path, coco, difficult):
    """Corners count from 1 and include the last pixel; `difficult` is a crowd; parts of objects are not objects."""
    root = write_voc(coco, tmp_path / 'voc')
    path = sorted((root / 'Annotations').glob('train_*.xml'))[0]
    box = '<bndbox><xmin>1</xmin><ymin>11</ymin><xmax>64</xmax><ymax>20</ymax></bndbox>'
    part = f'<part><name>head</name>{box}</part>'
    marked = f'<difficult>{difficult}</difficult>'
    path.write_text(f'<annotation><object><name>star</name>{marked}{box}{part}</object></annotation>')
    content = find_splits(root)['train'].content
    (image,) = (i for i in content['images'] if Path(i['file_name']).stem == path.stem)
    (a,) = (a for a in content['annotations'] if a['image_id'] == image['id'])
    assert (a['bbox'], a['area'], a['iscrowd']) == ([0, 10, 64, 10], 640, 1)
    assert (image['width'], image['height']) == (64, 64)
    assert [category['name'] for category in content['categories']] == sorted(NAMES)


def test_yolo_paths_of_windows_and_labels_next_to_images(coco, tmp_path):
    root = write_yolo(coco, tmp_path / 'yolo', train=r'images\train')
    right = [a['bbox'] for a in find_splits(root)['train'].content['annotations']]
    label = sorted((root / 'labels' / 'train').iterdir())[0]
    label.rename(root / 'images' / 'train' / label.name)
    assert [a['bbox'] for a in find_splits(root)['train'].content['annotations']] == right


def test_voc_objects_that_can_be_misread(tmp_path, coco):
    """Of two images of one stem the XML file names one; an object with two boxes is none."""
    root = write_voc(coco, tmp_path / 'voc')
    path = sorted((root / 'Annotations').glob('train_*.xml'))[0]
    image = next((root / 'JPEGImages').glob(f'{path.stem}.*'))
    Image.new('RGB', (64, 64)).save(image.with_suffix('.png'))
    box = '<bndbox><xmin>41</xmin><ymin>41</ymin><xmax>70</xmax><ymax>70</ymax></bndbox>'
    one = f'<object><name>star</name>{{}}{box}</object>'
    path.write_text(f'<annotation><filename>{image.stem}.png</filename>{one.format("")}</annotation>')
    (root / 'ImageSets' / 'Main' / 'train.txt').write_text(f'{path.stem}.png')  # VOC has no suffix there
    splits = find_splits(root)
    assert [Path(one['file_name']).suffix for one in splits['train'].content['images']] == ['.png']
    assert [a['bbox'] for a in splits['train'].content['annotations']] == [[40, 40, 30, 30]]
    path.write_text(f'<annotation>{one.format(box)}</annotation>')
    with pytest.raises(ValueError, match=r"an object 'star' has 2 bndbox, not 1"):
        find_splits(root)


def test_a_config_and_the_check_read_a_yolo_folder(coco, tmp_path, cache, capsys):
    root = write_yolo(coco, tmp_path / 'yolo')
    cfg = Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py')
    use_data_folder(Plan(cfg), str(root), ('train', 'val'))
    check_config_data(cfg, ('train', 'val', 'test'))
    dataset = cfg.train_dataloader.dataset
    assert Path(dataset.ann_file).is_relative_to(cache)
    first = DATASETS.build(dataset).get_data_info(0)['img_path']
    assert Path(first).is_relative_to(root / 'images' / 'train')
    assert Path(first).is_file()
    assert cfg.model.bbox_head.num_classes == 4
    check([str(root), '--out', str(tmp_path / 'sheets')])
    assert '| train | 8 |' in capsys.readouterr().out
    assert (tmp_path / 'sheets' / 'train.jpg').is_file()
    with pytest.raises(SystemExit, match=r'error: .* no annotation file .* not a YOLO dataset'):
        check([str(root / 'labels')])


def test_a_conversion_is_kept_until_a_file_changes(coco, tmp_path, monkeypatch):
    root = write_yolo(coco, tmp_path / 'yolo')
    before = find_splits(root)['train']
    monkeypatch.setattr('tokennorm.datasets.converted._convert', None)  # not called
    assert find_splits(root)['train'].content == before.content
    monkeypatch.undo()
    monkeypatch.setenv('TOKENNORM_CACHE', str(before.ann_file.parents[2]))
    label = next(iter((root / 'labels' / 'train').iterdir()))
    label.write_text('3 0.5 0.5 0.5 0.25\n')
    content = find_splits(root)['train'].content
    (image,) = (i for i in content['images'] if Path(i['file_name']).stem == label.stem)
    (a,) = (a for a in content['annotations'] if a['image_id'] == image['id'])
    assert (a['bbox'], a['area'], a['category_id']) == ([16, 24, 32, 16], 512, 4)


def test_other_code_converts_again(coco, tmp_path, cache, monkeypatch):
    root = write_yolo(coco, tmp_path / 'yolo')
    first, again = (find_splits(root)['train'].ann_file for _ in range(2))
    monkeypatch.setattr('tokennorm.datasets.splits._code', lambda: b'of another version')
    assert first == again != find_splits(root)['train'].ann_file


def test_a_cache_that_cannot_be_written_is_named(coco, tmp_path, monkeypatch):
    (tmp_path / 'file').touch()
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'file'))
    with pytest.raises(UserError, match=r'which TOKENNORM_CACHE sets: .*Not a directory'):
        find_splits(write_yolo(coco, tmp_path / 'yolo'))


def test_lists_of_files_relative_paths_and_the_yaml_itself(coco, tmp_path):
    """Ultralytics' and Roboflow's ways of naming the images; a `path` of another machine is ignored."""
    root = write_yolo(coco, tmp_path / 'yolo')
    expected = by_image(find_splits(root)['train'])
    images = sorted((root / 'images' / 'train').iterdir())
    (root / 'train.txt').write_text('\n'.join(f'./images/train/{path.name}' for path in images))
    names = dict(enumerate(NAMES))
    for train in ('train.txt', '../images/train', ['images/train'], str(root / 'images' / 'train')):
        content = dict(path='/home/someone/data', train=train, val='images/val', names=names, nc=4)
        (root / 'data.yaml').write_text(yaml.safe_dump(content))
        assert by_image(find_splits(root)['train']) == expected
        assert by_image(find_splits(root / 'data.yaml')['train']) == expected


YAMLS = {
    'wrong path': (dict(train='pictures/train'), "data.yaml: train='pictures/train' not found; looked for .*yolo/pict"),
    'no images': (dict(val='labels/val'), "data.yaml: val='labels/val' has no images"),
    'class count': (dict(nc=3), 'data.yaml: nc=3, but names has 4 classes: disk, square, triangle, star'),
    'names': (dict(names='disk'), "data.yaml: names='disk' must be a list, or a mapping whose keys count from 0"),
    'names in names': (dict(names=[{0: 'disk'}, {1: 'star'}]), "names=.*'disk'.* must be a list, or a mapping"),
}


@pytest.mark.parametrize('fault', YAMLS)
def test_faults_of_data_yaml_are_named(coco, tmp_path, fault):
    change, message = YAMLS[fault]
    with pytest.raises(ValueError, match=message):
        find_splits(write_yolo(coco, tmp_path / 'yolo', **change))


def test_faults_of_labels_are_named_with_file_and_line(coco, tmp_path):
    root = write_yolo(coco, tmp_path / 'yolo')
    label = sorted((root / 'labels' / 'val').iterdir())[0]
    label.write_text('0 0.5 0.5 0.1 0.1\n\n4 0.5 0.5 0.1 0.1\n')
    with pytest.raises(ValueError, match=rf'val: labels .*: 1: {re.escape(str(label))}, line 3: class 4 is not'):
        find_splits(root)


def test_folders_without_labels_or_splits_are_named(coco, tmp_path):
    root = write_yolo(coco, tmp_path / 'yolo')
    shutil.rmtree(root / 'labels' / 'train')
    with pytest.raises(
        ValueError, match=r'train has no label file for any of 8 images; .*labels/train/.*txt was expected'
    ):
        find_splits(root)
    (root / 'data.yaml').write_text(yaml.safe_dump(dict(val='images/val', names=NAMES)))
    with pytest.raises(FileNotFoundError, match='is a YOLO dataset without train; it has val'):
        find_splits(root)
    assert list(find_splits(root, needed=())) == ['val']
    (root / 'data.yaml').write_text('names: [')
    with pytest.raises(ValueError, match=r'data.yaml cannot be read as YAML'):
        find_splits(root)


VOCS = {
    'cut off': ('<annotation><object>', 'cannot be read as XML'),
    'no box': ('<annotation><object><name>star</name></object></annotation>', "an object 'star' has no bndbox"),
    'text': (
        '<annotation><object><name>star</name><bndbox><xmin>a</xmin></bndbox></object></annotation>',
        "bndbox.xmin='a' is not a number",
    ),
    'other size': (
        '<annotation><size><width>10</width><height>64</height></size></annotation>',
        r'size is 10x64, but .*\.jpg, upright, is 64x64',
    ),
}


@pytest.mark.parametrize('fault', VOCS)
def test_faults_of_voc_files_are_named(coco, tmp_path, fault):
    text, message = VOCS[fault]
    root = write_voc(coco, tmp_path / 'voc')
    path = sorted((root / 'Annotations').glob('train_*.xml'))[0]
    path.write_text(text)
    with pytest.raises(ValueError, match=f'{path.name}.*{message}'):
        find_splits(root)


def test_labels_that_are_newer_than_the_coco_file_are_named(tmp_path, coco):
    """`tokennorm split` writes one into a YOLO folder, whose labels may be edited later."""
    root = write_yolo(coco, tmp_path / 'yolo')
    for name in ('train', 'val'):
        content = json.loads((coco / 'annotations' / f'{name}.json').read_text())
        (root / f'{name}.json').write_text(json.dumps(content))
    labels = sorted((root / 'labels' / 'train').iterdir())
    for path in labels:
        os.utime(path, (0, 0))
    assert find_splits(root)['train'].notes == []
    os.utime(labels[0], (4e9, 4e9))
    said = f'train: 1 of {len(labels)} label files changed after {root}/train.json, which is what is read'
    assert said in inspect_splits(find_splits(root)).warnings
    for path in labels:  # made from the COCO file, or copied after it
        os.utime(path, (4e9, 4e9))
    assert find_splits(root)['train'].notes == []


def test_an_xml_file_without_its_image_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / 'a.xml').write_text('<annotation>\n</annotation>')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r'1 of 1 XML files have no image, such as a\.xml'):
        find_splits('.')
