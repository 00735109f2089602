"""Checks the initial weights of a training run before it begins."""

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
    """Reads the initial weights of a config's backbone, or warns that it is initialized at random.

    If the whole detector is loaded from a checkpoint (`load_from`, also to resume), the backbone's `init_cfg` is set to
    None. Third-party backbones keep their own loaders.

    Raises:
        CheckpointError: if the weights cannot be read, with how to train them, name others or do without.
        ValueError: for an `init_cfg` of another form.
    """
    backbone = cfg['model'].get('backbone') or {}
    if not str(backbone.get('type', '')).startswith('tokennorm.'):
        return
    if cfg.get('load_from'):
        backbone['init_cfg'] = None
        return
    init_cfg = backbone.get('init_cfg')
    if init_cfg is None:
        print_log('model.backbone.init_cfg is None: the backbone is initialized at random.', level=logging.WARNING)
        return
    checkpoint, _ = parse_init_cfg(init_cfg)
    try:
        read_state_dict(checkpoint)
    except (OSError, CheckpointError) as error:
        raise CheckpointError(f'{error}.\n{how_to_start(checkpoint)}') from error


def check_allow_missing(model: nn.Module) -> None:
    """Checks that every name in the `allow_missing` of a backbone's `init_cfg` matches a parameter."""
    backbone = getattr(model, 'backbone', None)
    if type(backbone).__module__.startswith('tokennorm.') and backbone.init_cfg is not None:
        matching(backbone.state_dict(), parse_init_cfg(backbone.init_cfg)[1])


def how_to_start(checkpoint: str) -> str:
    """Returns what to do if a backbone's initial weights, a file or a work directory, cannot be loaded."""
    path = Path(checkpoint)
    work_dir = path.parent if path.suffix == '.pth' else path
    makers = sorted(CONFIGS.glob(f'*/{work_dir.name}.py')) if work_dir.name else []
    make = [f'make it with `tools/dist_train.sh {path.relative_to(CONFIGS.parent)} GPUS`' for path in makers]
    ways = ', or '.join(
        [
            *make,
            'use a file with `--init FILE`',
            'choose a random initialization with `--init none`.',
        ]
    )
    return ways[0].upper() + ways[1:]
