"""`--epochs`: the length of training, and whatever else counts epochs in a recipe."""

from collections.abc import Iterator
from typing import Any

from mmengine.config import Config
from mmengine.registry import HOOKS

from tokennorm.base.messages import UserError
from tokennorm.config.tree import walk
from tokennorm.registry import arguments_of

_PLACES = ('train_cfg', 'custom_hooks', 'default_hooks', 'model')


def set_epochs(cfg: Config, epochs: int, old: int | None) -> None:
    """Sets the length of training and scales every number of an epoch in the loop, in hooks and in the model.

    A stage that began after the first epoch and before the end still does; in one epoch it begins at once. The schedule
    is fitted later, to the iterations. `old` is the length of the recipe, in epochs.

    Raises:
        UserError: for a config that counts iterations.
    """
    loop = cfg.get('train_cfg') or {}
    if 'max_iters' in loop:
        raise UserError('--epochs: this config counts iterations; use --cfg-options train_cfg.max_iters=N')
    loop['max_epochs'] = epochs
    if not isinstance(old, int) or old == epochs:
        return
    if intervals := loop.get('dynamic_intervals'):  # mmengine takes tuples only
        loop['dynamic_intervals'] = [(scaled(begin, old, epochs), interval) for begin, interval in intervals]
    for part, key, value in list(_stages(cfg)):
        if (new := scaled(value, old, epochs)) != value:
            part[key] = new


def scaled(epoch: int, old: int, new: int) -> int:
    """Scales a number of epochs of a recipe with `old` epochs to `new` ones: 0 stays, and an inner one stays inside."""
    if epoch <= 0:
        return epoch
    nearest = round(epoch * new / old)
    return min(max(1, nearest), new - 1) if epoch < old else max(new, nearest)


def _stages(cfg: Config) -> Iterator[tuple[Any, str, int]]:
    """Yields every number of epochs: what holds it, its key and its value."""
    for place in _PLACES:
        for path, part in walk(cfg.get(place), place):
            values = arguments_of(part, cfg.get('default_scope'), HOOKS) if place == 'custom_hooks' else {}
            for key, value in (values | dict(part)).items():
                counts = ('epoch' in key or key in ('val_begin', 'save_begin')) and part.get('by_epoch', True)
                if type(value) is int and counts and (path, key) != ('train_cfg', 'max_epochs'):
                    yield part, key, value
