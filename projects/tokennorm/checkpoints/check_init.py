"""What a training starts from: said before it begins, and never random in silence."""

import logging
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from mmengine.logging import print_log
from torch import nn

from tokennorm.checkpoints.loading import matching, parse_init_cfg
from tokennorm.checkpoints.reading import CheckpointError, read_state_dict
from tokennorm.config_paths import CONFIGS


def check_start(cfg: MutableMapping[str, Any]) -> None:
    """Reads the weights that a config's backbone starts from, or says that it starts from random ones.

    Where the whole detector comes from a checkpoint (`load_from`), to resume or to start from, the backbone needs no
    other, and its `init_cfg` is set to None. Backbones of other packages are left to their own loaders.

    Raises:
        CheckpointError: where the weights are not to be had, with how to make them, to name others or to do without.
        ValueError: for an `init_cfg` that is of another form.
    """
    backbone = cfg['model'].get('backbone') or {}
    if not str(backbone.get('type', '')).startswith('tokennorm.'):
        return
    if cfg.get('load_from'):
        backbone['init_cfg'] = None
        return
    init_cfg = backbone.get('init_cfg')
    if init_cfg is None:
        print_log('model.backbone.init_cfg is None: the backbone starts from random weights.', level=logging.WARNING)
        return
    checkpoint, _ = parse_init_cfg(init_cfg)
    try:
        read_state_dict(checkpoint)
    except (OSError, CheckpointError) as error:
        raise CheckpointError(f'{error}.\n{how_to_start(checkpoint)}') from error


def check_allow_missing(model: nn.Module) -> None:
    """The names that the `init_cfg` of a model's backbone lets keep their start are those of parameters.

    Raises:
        ValueError: for one that is not.
    """
    backbone = getattr(model, 'backbone', None)
    if type(backbone).__module__.startswith('tokennorm.') and backbone.init_cfg is not None:
        matching(backbone.state_dict(), parse_init_cfg(backbone.init_cfg)[1])


def how_to_start(checkpoint: str) -> str:
    """What to do where a backbone's starting weights, a file or a work folder, cannot be loaded."""
    path = Path(checkpoint)
    work_dir = path.parent if path.suffix == '.pth' else path
    makers = sorted(CONFIGS.glob(f'*/{work_dir.name}.py')) if work_dir.name else []
    make = [f'make it with `tools/dist_train.sh {path.relative_to(CONFIGS.parent)} GPUS`' for path in makers]
    return 'To start, ' + ', or '.join(
        [
            *make,
            'name another with `--cfg-options model.backbone.init_cfg.checkpoint=FILE`',
            'ask for random weights with `--cfg-options model.backbone.init_cfg=None`.',
        ]
    )
