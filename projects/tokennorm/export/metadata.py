"""What an exported file says about itself, so that a program without the config can prepare images for it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmdet.utils import get_test_pipeline_cfg
from mmengine.config import Config

from tokennorm.export.dense import UnsupportedError
from tokennorm.export.detector import WholeDetector
from tokennorm.export.runtime import FORMAT
from tokennorm.inference.prediction import category_ids_of
from tokennorm.registry import type_name
from tokennorm.version import __version__

_NO_GEOMETRY = ('LoadImageFromFile', 'LoadImageFromNDArray', 'LoadAnnotations', 'PackDetInputs')


def resize_rule(cfg: Config) -> dict[str, Any] | None:
    """Returns how the test pipeline of a config resizes images, as `runtime.resized_shape` reads it."""
    rule = None
    for step in get_test_pipeline_cfg(cfg):
        kind = type_name(step)
        if kind == 'Resize' and step.get('scale') is not None and rule is None:
            scale = [step['scale']] * 2 if isinstance(step['scale'], int) else list(step['scale'])
            rule = dict(scale=scale, keep_ratio=bool(step.get('keep_ratio', False)))
        elif kind not in _NO_GEOMETRY:
            raise UnsupportedError(
                f'the test pipeline has {kind}, which an exported detector cannot repeat; supported is one Resize with '
                'a scale'
            )
    return rule


def describe(
    detector: WholeDetector,
    cfg: Config,
    dataset_meta: Mapping[str, Any],
    config_name: str,
    license_name: str,
    thresholds: Sequence[float] | None = None,
) -> dict[str, str]:
    """Returns the metadata of an exported detector, each value as JSON; `thresholds` has a score per class."""
    model = detector.detector
    head_cfg = model.roi_head.test_cfg if detector.two_stages else model.bbox_head.test_cfg
    content = dict(
        format=FORMAT,
        classes=list(dataset_meta['classes']),
        category_ids=category_ids_of(dataset_meta),
        color=detector.color,
        mean=detector.pixel_mean.flatten().tolist(),
        std=detector.pixel_std.flatten().tolist(),
        resize=resize_rule(cfg),
        smallest_side=detector.smallest_side,
        score_threshold=head_cfg.get('score_thr', 0),
        thresholds=None if thresholds is None else list(thresholds),
        mask_threshold=head_cfg.get('mask_thr_binary', 0.5) if detector.with_masks else None,
        config=config_name,
        license=license_name,
        versions=dict(tokennorm=__version__, torch=str(torch.__version__)),
    )
    return {f'tokennorm.{key}': json.dumps(value) for key, value in content.items()}
