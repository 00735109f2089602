"""What a detector was trained with besides its weights: image size and sizes of anchors, in its `dataset_meta`."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from mmengine.config import Config

from tokennorm.config.tree import as_list, innermost_datasets, loaders
from tokennorm.plan.anchor_fit import anchor_sizes
from tokennorm.plan.changes import Plan
from tokennorm.plan.image_size import set_image_size, short_side

IMAGE_SIZE, ANCHORS = 'image_size', 'anchors'  # in pixels; a path in the config and its value


def use_trained_size(plan: Plan, meta: Mapping[str, Any]) -> None:
    """Sets the image size that a checkpoint's `dataset_meta` names, unless the user sets the pipeline of testing."""
    size, is_chosen = meta.get(IMAGE_SIZE), any('pipeline' in path for path in plan.users('test_dataloader'))
    if size and not is_chosen and (old := short_side(plan.cfg)) not in (None, size):
        with plan.step(f'--data: short side of the images {size} pixels, as in training (recipe: {old})'):
            set_image_size(plan.cfg, size)


def use_trained_anchors(plan: Plan, meta: Mapping[str, Any]) -> None:
    """Sets the sizes of anchors that a checkpoint's `dataset_meta` names. Nothing else is taken from it."""
    noted, present = meta.get(ANCHORS), anchor_sizes(plan.cfg)
    if present is None or not isinstance(noted, list | tuple) or len(noted) != 2 or noted[0] != present[0]:
        return
    numbers, old = map(as_list, (noted[1], present[1]))
    if numbers not in ([], old) and all(type(number) in (int, float) for number in numbers):
        plan.set(noted[0], noted[1], '--data: anchors with which the weights were trained')


def note_sizes(plan: Plan, own_data: bool) -> None:
    """Notes image size and anchors in the datasets' metainfo, for configs that differ from this one.

    The config of an earlier run has notes. They follow what options or the user's editor have changed since.
    """
    noted = {key for dataset in _datasets(plan.cfg) for key in dataset.get('metainfo') or ()}
    values: dict[str, Any] = {}
    if (own_data or ANCHORS in noted) and (sizes := anchor_sizes(plan.cfg)):
        values[ANCHORS] = list(sizes)
    size = short_side(plan.cfg)
    is_changed = own_data and size != short_side(plan.recipe)
    if size is not None and (IMAGE_SIZE in noted or is_changed):
        values[IMAGE_SIZE] = size
    with plan.step('noted for other configs', show=False):
        for dataset in _datasets(plan.cfg) if values else ():
            dataset['metainfo'] = {**(dataset.get('metainfo') or {}), **values}


def _datasets(cfg: Config) -> Iterator[MutableMapping[str, Any]]:
    for loader in loaders(cfg):
        yield from innermost_datasets(loader['dataset'])
