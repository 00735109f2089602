"""Shape classes: one seed gives the same bytes, and the shape has its class and surface."""

import pytest

from experiments.study import shape_classes as synthetic_classes
from experiments.study.shape_classes import SHAPE_CLASSES, make_shape_classes_dataset

SMALL = dict(num_train=26, num_val=12, image_size=64, seed=3)


def contents(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob('*') if path.is_file()}


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    return make_shape_classes_dataset(tmp_path_factory.mktemp('classes') / 'classes', **SMALL)


def test_same_seed_same_bytes_and_other_seeds_and_splits_do_not(dataset, tmp_path):
    again = make_shape_classes_dataset(tmp_path / 'again', **SMALL)
    assert contents(again) == contents(dataset)
    pictures = [
        synthetic_classes.make_class_image(synthetic_classes.ClassSettings(12, 12, 64, seed), split, 5).astype(float)
        for seed in (0, 1)
        for split in ('train', 'val')
    ]
    for i, first in enumerate(pictures):
        for second in pictures[:i]:
            assert abs(first - second).mean() > 8  # of 255


def test_a_shape_is_of_its_class_has_its_surface_and_is_inside(monkeypatch):
    painted = []
    monkeypatch.setattr(synthetic_classes, 'paint', lambda rng, shapes, size: painted.append(shapes))
    settings = synthetic_classes.ClassSettings(120, 120, 64, 0)
    for index in range(60):
        synthetic_classes.make_class_image(settings, 'train', index)
    for index, (shape,) in enumerate(painted):
        outline, _, surface = SHAPE_CLASSES[index % 12].partition('-')
        assert (('disk', 'square', 'triangle', 'star')[shape.label], shape.surface) == (outline, surface)
        assert 0.35 * 64 <= shape.size <= 0.7 * 64
        assert shape.mask.sum() >= 0.75 * shape.full_area
