"""Division of images into train and val: every image once, the same for a seed, from any format."""

import json
import shutil

import numpy as np
import pytest

from experiments.shapes import make_shapes_dataset
from tests.helpers.commands import tool
from tests.helpers.folders import with_pentagons, write_voc, write_yolo
from tokennorm.base.messages import UserError
from tokennorm.datasets.discovery import find_splits
from tokennorm.datasets.splits import CocoSplit
from tokennorm.datasets.splitting import write_folds


@pytest.fixture
def whole(tmp_path):
    images = [dict(id=i + 1, file_name=f'{i}.jpg', width=20, height=20) for i in range(10)]
    annotations = [
        dict(id=j + 1, image_id=j % 10 + 1, category_id=1, bbox=[1, 2, 5, 5 + j], area=25 + 5 * j, iscrowd=0)
        for j in range(30)
    ]
    path = tmp_path / 'instances_default.json'
    path.write_text(
        json.dumps(dict(info='kept', images=images, annotations=annotations, categories=[dict(id=1, name='cell')]))
    )
    return path


def split(path, *arguments):
    """Runs the command, and returns the content of the files that it writes."""
    tool('split')([str(path), *map(str, arguments)])
    folder = path if path.is_dir() else path.parent
    return {name: json.loads((folder / f'{name}.json').read_text()) for name in ('train', 'val')}


def test_every_image_is_in_one_part_with_its_annotations(whole):
    parts = split(whole, '--val', 0.3)
    ids = {name: {image['id'] for image in part['images']} for name, part in parts.items()}
    assert (len(ids['train']), len(ids['val'])) == (7, 3)
    assert ids['train'] | ids['val'] == set(range(1, 11))
    for name, part in parts.items():
        assert {a['image_id'] for a in part['annotations']} == ids[name]
        assert len(part['annotations']) == 3 * len(ids[name])
        assert part['info'] == 'kept'
        assert part['categories'] == [dict(id=1, name='cell')]


@pytest.mark.parametrize('seed', range(3))
def test_copies_of_an_image_stay_together(whole, seed):
    content = json.loads(whole.read_text())
    for i, one in enumerate(content['images']):
        one['file_name'] = f'image{i // 3}_jpg.rf.{i:032x}.jpg'
    whole.write_text(json.dumps(content))
    parts = split(whole, '--val', 0.3, '--seed', seed)
    names = {key: {one['file_name'][: len('image0')] for one in part['images']} for key, part in parts.items()}
    assert not names['train'] & names['val']
    assert sum(len(part['images']) for part in parts.values()) == 10
    assert len(parts['val']['images']) in (3, 4)


@pytest.mark.parametrize(('originals', 'sizes'), [(2, (4, 6)), (1, None)])
def test_copies_of_one_or_two_images(whole, originals, sizes):
    content = json.loads(whole.read_text())
    for i, one in enumerate(content['images']):
        one['file_name'] = f'image{i < 4 and originals > 1}_jpg.rf.{i:032x}.jpg'
    whole.write_text(json.dumps(content))
    if sizes is None:
        with pytest.raises(SystemExit, match=r'10 images \(groups that stay together: 1\) leaves a split without'):
            split(whole, '--val', 0.5)
        return
    parts = split(whole, '--val', 0.8)
    assert sorted(len(part['images']) for part in parts.values()) == list(sizes)


@pytest.mark.parametrize(
    ('name', 'pattern'), [('clip{}_{:04}.jpg', r'.+(?=_\d+)'), ('in/{}/frame{}.png', '.+/'), ('{}-{}.rf.a.jpg', '^.')]
)
def test_frames_of_a_video_stay_together(whole, name, pattern):
    content = json.loads(whole.read_text())
    for i, one in enumerate(content['images']):
        one['file_name'] = name.format(i % 5, i)
    whole.write_text(json.dumps(content))
    parts = split(whole, '--val', 0.4, '--group', pattern)
    clips = {key: {(one['id'] - 1) % 5 for one in part['images']} for key, part in parts.items()}
    assert (len(clips['train']), len(clips['val'])) == (3, 2)
    assert not clips['train'] & clips['val']


@pytest.mark.parametrize(
    ('pattern', 'message'),
    [
        ('x', r'--group x finds nothing in the file name \d.jpg'),
        ('[0-4]?', r'finds nothing in the file name [5-9].jpg'),
        ('(', 'unterminated'),
    ],
)
def test_a_pattern_that_groups_nothing(whole, pattern, message):
    with pytest.raises(SystemExit, match=message):
        split(whole, '--group', pattern)


@pytest.mark.parametrize('left_out', [(), ('id', 'area', 'iscrowd')], ids=['Label Studio', 'labelformat'])
def test_annotations_of_other_programs_are_completed(left_out, whole):
    content = json.loads(whole.read_text())
    expected = {(a['image_id'], *a['bbox'], a['area'], a['iscrowd']) for a in content['annotations']}
    for one in content['annotations']:
        one['id'] -= 1
        for key in left_out:
            del one[key]
    whole.write_text(json.dumps(content))
    found = [one for part in split(whole).values() for one in part['annotations']]
    assert sorted(one['id'] for one in found) == list(range(1, 31))
    assert {(a['image_id'], *a['bbox'], a['area'], a['iscrowd']) for a in found} == expected


def test_the_seed_decides(whole):
    def val_of(seed):
        part = split(whole, '--val', 0.5, '--seed', seed)['val']
        for name in ('train', 'val'):
            whole.with_name(f'{name}.json').unlink()
        return part['images']

    assert val_of(1) == val_of(1) != val_of(2)


@pytest.fixture
def coco(tmp_path, monkeypatch):
    """Six images for training and two for validation."""
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'cache'))
    return with_pentagons(make_shapes_dataset(tmp_path / 'shapes', num_train=6, num_val=2, image_size=48))


@pytest.mark.parametrize('layout', ['YOLO', 'VOC trainval', 'VOC folders', 'VOC without splits'])
def test_a_yolo_or_voc_folder_becomes_a_coco_folder(coco, tmp_path, layout):
    (coco / 'annotations' / 'val.json').unlink()
    expected = json.loads((coco / 'annotations' / 'train.json').read_text())['annotations']
    root = tmp_path / 'labels'
    if layout == 'YOLO':
        write_yolo(coco, root, val=None)
    else:
        write_voc(coco, root, image_sets=layout != 'VOC folders')
    if layout == 'VOC trainval':
        (root / 'ImageSets' / 'Main' / 'train.txt').rename(root / 'ImageSets' / 'Main' / 'trainval.txt')
    if layout == 'VOC without splits':
        shutil.rmtree(root / 'ImageSets')
    with pytest.raises(SystemExit, match=r'without val; it has train; .* `tokennorm split` divides train'):
        tool('check')([str(root)])
    parts = split(root, '--val', 0.34)
    assert [len(part['images']) for part in parts.values()] == [4, 2]
    boxes = [one['bbox'] for part in parts.values() for one in part['annotations']]
    np.testing.assert_allclose(sorted(boxes), sorted(one['bbox'] for one in expected), atol=1e-3)
    for part in find_splits(root).values():
        assert part.source == str(root / f'{part.name}.json')
        assert all((part.image_dir / image['file_name']).is_file() for image in part.content['images'])


@pytest.mark.parametrize('write', [write_yolo, write_voc])
def test_a_folder_with_val_is_not_split(coco, tmp_path, write):
    with pytest.raises(SystemExit, match='labels has a val split already: 2 images'):
        split(write(coco, tmp_path / 'labels'))


def test_annotations_that_cannot_be_used_are_not_split(whole):
    content = json.loads(whole.read_text())
    content['images'][1]['id'] = 1
    whole.write_text(json.dumps(content))
    with pytest.raises(SystemExit, match=r'error: instances_default: images with the same id: 1'):
        split(whole)
    assert not whole.with_name('val.json').exists()


def test_nothing_is_overwritten(whole, tmp_path):
    split(whole)
    with pytest.raises(SystemExit, match=r'train.json already exists'):
        split(whole)
    with pytest.raises(SystemExit, match=r'train.json already exists; rename it'):
        split(whole.with_name('train.json'))
    (tmp_path / 'val.json').unlink()
    with pytest.raises(SystemExit, match=r'is a COCO dataset; name the file to divide, .*/train.json'):
        split(tmp_path)


def test_folds_judge_every_image_once(tmp_path):
    """Copies stay together; a repeated call changes no file; other annotations or another number are refused."""
    images = [dict(id=i, file_name=f'{i // 2}.rf.{i}a.jpg', width=20, height=20) for i in range(1, 12)]
    annotations = [dict(id=i, image_id=i, category_id=1, bbox=[1, 2, 5, 5], area=25, iscrowd=0) for i in range(1, 12)]
    content = dict(images=images, annotations=annotations, categories=[dict(id=1, name='cell')], tokennorm={})
    whole = CocoSplit('train', tmp_path / 'train.json', tmp_path, content)
    write_folds(whole, 3, tmp_path / 'folds')
    files = {path: path.read_bytes() for path in tmp_path.rglob('folds/*/data/*.json')}
    times = {path: path.stat().st_mtime_ns for path in files}
    parts = {path.relative_to(tmp_path / 'folds').parts: json.loads(text) for path, text in files.items()}
    assert len(parts) == 6
    judged = []
    for number in '123':
        train, val = (parts[number, 'data', f'{name}.json'] for name in ('train', 'val'))
        names = [{image['file_name'].partition('.rf')[0] for image in part['images']} for part in (train, val)]
        assert names[0].isdisjoint(names[1])
        assert len(train['images']) + len(val['images']) == len(images)
        for part in (train, val):
            assert {one['image_id'] for one in part['annotations']} == {image['id'] for image in part['images']}
            assert all(image['file_name'].startswith(str(tmp_path)) for image in part['images'])
        judged += [image['id'] for image in val['images']]
    assert sorted(judged) == [image['id'] for image in images]
    write_folds(whole, 3, tmp_path / 'folds')
    assert {path: path.stat().st_mtime_ns for path in files} == times
    with pytest.raises(UserError, match='another number of folds'):
        write_folds(whole, 2, tmp_path / 'folds')
    with pytest.raises(UserError, match=r'--folds 7: .* has only 6 images, or groups of copies'):
        write_folds(whole, 7, tmp_path / 'more')
