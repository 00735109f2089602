"""The shapes dataset: what is annotated is what is seen, one seed gives the same bytes, nothing half-made stays."""

import contextlib
import io
import json

import cv2
import numpy as np
import pytest
from pycocotools.coco import COCO

from experiments.shapes import CLASSES, make_shapes_dataset
from experiments.shapes import dataset as synthetic

SMALL = dict(num_train=48, num_val=12, image_size=96, seed=3)  # image 11 of each split has no object


def contents(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob('*') if path.is_file()}


def load(root, split):
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(root / 'annotations' / f'{split}.json')


def objects(root, split='train'):
    """(image (S, S, 3), annotation, mask (S, S) bool) of every object of a split."""
    coco = load(root, split)
    for info in coco.dataset['images']:
        image = cv2.imread(str(root / 'images' / split / info['file_name']))
        for annotation in coco.imgToAnns[info['id']]:
            yield image, annotation, coco.annToMask(annotation).astype(bool)


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('shapes') / 'shapes', **SMALL)


def test_layout_and_fields(dataset):
    for split, count in (('train', 48), ('val', 12)):
        names = [f'{number:06d}.jpg' for number in range(1, count + 1)]
        assert sorted(path.name for path in (dataset / 'images' / split).iterdir()) == names
        content = load(dataset, split).dataset
        assert [image['file_name'] for image in content['images']] == names
        assert [category['name'] for category in content['categories']] == list(CLASSES)
        assert [category['id'] for category in content['categories']] == [1, 2, 3, 4]
        assert [a['id'] for a in content['annotations']] == list(range(1, len(content['annotations']) + 1))
        assert all(a['iscrowd'] == 0 for a in content['annotations'])
        assert cv2.imread(str(dataset / 'images' / split / names[-1])).shape == (96, 96, 3)
    assert json.loads((dataset / 'dataset.json').read_text()) == dict(SMALL, format_version=1)


def test_same_seed_same_bytes(dataset, tmp_path):
    synthetic.write_split(tmp_path, synthetic.Settings(**SMALL), 'val')
    assert contents(tmp_path) == {name: content for name, content in contents(dataset).items() if 'val' in name}


def test_bbox_and_area_are_those_of_the_mask(dataset):
    for _, annotation, mask in objects(dataset):
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        assert annotation['bbox'] == [columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1]
        assert annotation['area'] == mask.sum() >= synthetic.MIN_VISIBLE_PIXELS


def test_every_planned_object_is_visible_enough():
    occluded = cut = 0
    for seed in range(60):
        shapes = synthetic.plan(np.random.default_rng(seed), 8, 128)
        owner = np.full((128, 128), -1)
        for number, shape in enumerate(shapes):  # from back to front, as painted
            owner[shape.alpha >= 0.5] = number
            assert abs(shape.full_area / shape.size**2 - 1) < 0.12  # the rim's pixels weigh most at 13 px
        masks = synthetic.visible_masks(shapes)
        assert len(masks) == len(shapes)
        for number, (shape, mask) in enumerate(zip(shapes, masks, strict=True)):
            assert np.array_equal(mask, owner == number)
            assert mask.sum() >= max(40, 0.35 * shape.full_area)
            occluded += mask.sum() < 0.8 * shape.mask.sum()
            cut += shape.mask.sum() < 0.8 * shape.full_area
    assert occluded > 40
    assert cut > 40


def test_every_class_and_images_without_object(dataset):
    content = load(dataset, 'train').dataset
    assert {a['category_id'] for a in content['annotations']} == {1, 2, 3, 4}
    counts = np.bincount([a['image_id'] for a in content['annotations']], minlength=49)[1:]
    assert np.flatnonzero(counts == 0).tolist() == [10, 30]
    assert counts.max() >= 6
    assert not load(dataset, 'val').imgToAnns[11]


def test_present_dataset_is_kept_and_other_settings_are_refused(dataset, capsys):
    before = contents(dataset)
    times = {path: path.stat().st_mtime_ns for path in dataset.rglob('*')}
    assert make_shapes_dataset(dataset, **SMALL) == dataset
    assert 'nothing to do' in capsys.readouterr().out
    with pytest.raises(FileExistsError, match='not a dataset of these settings'):
        make_shapes_dataset(dataset, **dict(SMALL, seed=4))
    assert contents(dataset) == before
    assert {path: path.stat().st_mtime_ns for path in dataset.rglob('*')} == times
