"""`--epochs`: the length of training, and whatever else counts epochs in a recipe."""

from collections.abc import Iterator
from typing import Any

from mmengine.config import Config
from mmengine.registry import HOOKS

from tokennorm.config.tree import walk
from tokennorm.messages import UserError
from tokennorm.registry import arguments_of

_PLACES = ('train_cfg', 'custom_hooks', 'default_hooks', 'model')


def set_epochs(cfg: Config, epochs: int, old: int | None) -> None:
    """Sets the length of training and scales every number of an epoch in the loop, in hooks and in the model.

    A stage that began after the first epoch and before the end still does; in one epoch it begins at once. The schedule
    is fitted later, to the iterations. `old` is the length of the recipe, in epochs.

    Raises:
        UserError: for a config that counts iterations, and where stages would begin in the same epoch.
    """
    loop = cfg.get('train_cfg') or {}
    if 'max_iters' in loop:
        raise UserError('--epochs: this config counts iterations; use --cfg-options train_cfg.max_iters=N')
    loop['max_epochs'] = epochs
    if not isinstance(old, int) or old == epochs:
        return
    if loop.get('dynamic_intervals'):  # pairs of an epoch and the interval from it
        loop['dynamic_intervals'] = [list(pair) for pair in loop['dynamic_intervals']]
    stages = list(_stages(cfg))
    for kind in {kind for kind, *_ in stages}:
        values = {value for one, _, _, _, value in stages if one == kind}
        lengths = [n for n in range(1, old + 1) if len({scaled(value, old, n) for value in values}) == len(values)]
        if epochs < lengths[0]:
            least = f'{len(values)} stages, which need at least {lengths[0]} epochs'
            raise UserError(f'--epochs {epochs}: {kind} has {least}')
    for _, _, part, key, value in stages:
        scaled_value = scaled(value, old, epochs)
        if scaled_value != value:
            part[key] = scaled_value
    if loop.get('dynamic_intervals'):
        loop['dynamic_intervals'] = [tuple(pair) for pair in loop['dynamic_intervals']]  # mmengine takes no lists


def scaled(epoch: int, old: int, new: int) -> int:
    """Scales a number of epochs of a recipe with `old` epochs to `new` ones: 0 stays, and an inner one stays inside."""
    if epoch <= 0:
        return epoch
    nearest = round(epoch * new / old)
    return min(max(1, nearest), new - 1) if epoch < old else max(new, nearest)


def _stages(cfg: Config) -> Iterator[tuple[str, str, Any, Any, int]]:
    """Yields every number of epochs: the list that it is part of, its path, what holds it, its key and its value."""
    for i, pair in enumerate(cfg.train_cfg.get('dynamic_intervals') or ()):
        yield 'train_cfg.dynamic_intervals', f'train_cfg.dynamic_intervals[{i}]', pair, 0, pair[0]
    for place in _PLACES:
        for path, part in walk(cfg.get(place), place):
            values = arguments_of(part, cfg.get('default_scope'), HOOKS) if place == 'custom_hooks' else {}
            for key, value in (values | dict(part)).items():
                counts = ('epoch' in key or key in ('val_begin', 'save_begin')) and part.get('by_epoch', True)
                if type(value) is int and counts and (path, key) != ('train_cfg', 'max_epochs'):
                    above, _, _ = path.rpartition('[')  # of one list inside a hook; hooks are independent
                    yield above if '.' in above else f'{path}.{key}', f'{path}.{key}', part, key, value
