"""Runs a trained detector on images or a video, and writes drawings and a COCO-format json."""

import json
import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmdet.apis import DetInferencer
from mmdet.structures import DetDataSample
from mmdet.structures.mask import encode_mask_results
from mmengine.config import Config
from mmengine.logging import MMLogger

from tokennorm.build_errors import build_errors
from tokennorm.checkpoints import CheckpointError, convert_detector, find_checkpoint, read_checkpoint
from tokennorm.checkpoints.in_mmengine import keep_mmengine_from_unpickling
from tokennorm.checkpoints.reading import describe, state_dict_in, trained_meta
from tokennorm.config_files import read_config, use_options
from tokennorm.config_tree import model_of, set_num_classes
from tokennorm.environment import require_mmcv_ops
from tokennorm.files import write_atomically
from tokennorm.image_size import use_trained_size

_COCO_GAPS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}  # ids that COCO skips between its 80 classes, 1 to 90


def open_detector(
    config: str | Path, checkpoint: str | Path, device: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[DetInferencer, Config, str]:
    """Returns the inferencer of `build_inferencer`, its config, and the file or URL of the checkpoint.

    Raises:
        UserError: for a config that cannot be read, and for options that do not fit it.
        FileNotFoundError, ValueError, RuntimeError: for a config or a checkpoint that cannot be used.
    """
    require_mmcv_ops()
    cfg = read_config(config)
    use_options(cfg, options)
    model_of(cfg)
    if cfg.get('default_scope') != 'mmdet':
        raise ValueError(f'{config} is not a detector config: default_scope={cfg.get("default_scope")!r}')
    found = find_checkpoint(checkpoint)
    return build_inferencer(cfg, found, check_device(device)), cfg, found


def check_device(device: str | None) -> str | None:
    """Returns the name of a device that exists, or None."""
    if device is not None:
        try:
            torch.empty(0, device=device)
        except (AssertionError, RuntimeError, NotImplementedError):
            there = [f'cuda:{i}' for i in range(torch.cuda.device_count())]
            raise ValueError(f'--device {device} is not available; there are {", ".join(["cpu", *there])}') from None
    return device


def build_inferencer(cfg: Config, checkpoint: str, device: str | None = None) -> DetInferencer:
    """Returns mmdet's inferencer of a config, with the weights and the classes of a checkpoint.

    The heads get as many classes as the checkpoint was trained with, so that the config may name other data. Images are
    resized as in training.

    Raises:
        CheckpointError: if the checkpoint does not fit the config, or has no class names.
    """
    keep_mmengine_from_unpickling()
    content = read_checkpoint(checkpoint)
    meta = trained_meta(content)
    if not meta.get('classes'):
        raise CheckpointError(
            f'{checkpoint} is not a checkpoint of a training run: it has no meta.dataset_meta.classes'
        )
    set_num_classes(cfg['model'], len(meta['classes']))
    cfg['test_dataloader']['dataset']['metainfo'] = dict(meta)
    use_trained_size(cfg, meta)
    logger = MMLogger.get_current_instance()
    logger.addFilter(_is_not_fallback)
    try:
        with build_errors(), warnings.catch_warnings():  # about missing weights and classes, which follow
            warnings.simplefilter('ignore')
            inferencer = DetInferencer(cfg, device=device, show_progress=False)
    finally:
        logger.removeFilter(_is_not_fallback)
    state_dict = state_dict_in(content, checkpoint)
    converted, _ = convert_detector(inferencer.model, state_dict, describe(content, checkpoint))
    inferencer.model.load_state_dict(converted)
    inferencer.model.dataset_meta = inferencer.visualizer.dataset_meta = dict(meta)
    return inferencer


def _is_not_fallback(record: logging.LogRecord) -> bool:
    """Drops mmengine's warning that mmdet has no registry of functions: mmengine's own has the collate function."""
    return 'Failed to search registry' not in record.getMessage()


def draw_detections(
    inferencer: DetInferencer, image: np.ndarray, sample: DetDataSample, score_thr: float
) -> np.ndarray:
    """Detections of at least `score_thr` on an image, (H, W, 3) uint8 BGR -> same."""
    inferencer.visualizer.add_datasample(
        'prediction', cv2.cvtColor(image, cv2.COLOR_BGR2RGB), sample, draw_gt=False, pred_score_thr=score_thr
    )
    return cv2.cvtColor(inferencer.visualizer.get_image(), cv2.COLOR_RGB2BGR)


@dataclass
class CocoDetections:
    """Detections in COCO's format: images, categories, and annotations with a `score`.

    It holds every detection that the model keeps, whatever its score. Image ids count from 1; `COCO.loadRes` takes the
    annotations.
    """

    meta: Mapping[str, Any]  # the dataset's `classes`, and `category_ids` of data that was not COCO
    images: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, image: np.ndarray, sample: DetDataSample) -> None:
        """Adds an image (H, W, 3) and its detections."""
        height, width = image.shape[:2]
        image_id = len(self.images) + 1
        self.images.append(dict(id=image_id, file_name=name, width=width, height=height))
        found = sample.pred_instances.cpu()
        masks = encode_mask_results(found.masks) if 'masks' in found else [None] * len(found)
        category_ids = self.category_ids()
        for box, score, label, mask in zip(
            found.bboxes.tolist(), found.scores.tolist(), found.labels.tolist(), masks, strict=True
        ):
            x1, y1, x2, y2 = box
            annotation = dict(
                id=len(self.annotations) + 1,
                image_id=image_id,
                category_id=category_ids[label],
                bbox=[round(value, 2) for value in (x1, y1, x2 - x1, y2 - y1)],
                area=round((x2 - x1) * (y2 - y1), 2),
                iscrowd=0,
                score=round(score, 5),
            )
            if mask is not None:
                annotation['segmentation'] = dict(size=list(mask['size']), counts=mask['counts'].decode())
            self.annotations.append(annotation)
        if 'track_ids' in found and len(found):
            for annotation, number in zip(self.annotations[-len(found) :], found.track_ids.tolist(), strict=True):
                annotation['track_id'] = number

    def category_ids(self) -> list[int]:
        """The id of each class: the training data's, COCO's own for its 80 classes, or counted from 1."""
        classes = self.meta['classes']
        if 'category_ids' in self.meta:
            return list(self.meta['category_ids'])
        if len(classes) == 80 and classes[0] == 'person' and classes[-1] == 'toothbrush':
            return [i for i in range(1, 91) if i not in _COCO_GAPS]
        return list(range(1, len(classes) + 1))

    def write(self, path: Path) -> None:
        """Writes the json; raises an OSError if it cannot be written."""
        categories = [dict(id=i, name=name) for i, name in zip(self.category_ids(), self.meta['classes'], strict=True)]
        content = dict(images=self.images, annotations=self.annotations, categories=categories)
        write_atomically(path, json.dumps(content).encode())
