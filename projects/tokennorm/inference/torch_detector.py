"""`TorchDetector`, a trained detector in PyTorch as a Python function of images."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmdet.apis import DetInferencer
from mmdet.registry import MODELS
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from torch import nn

from tokennorm.base.environment import check_mmcv_ops
from tokennorm.base.messages import UserError
from tokennorm.base.process import alone
from tokennorm.checkpoints import Checkpoint, CheckpointError, convert_detector
from tokennorm.checkpoints.safe_reading import keep_mmengine_from_unpickling
from tokennorm.config.build_errors import build_errors
from tokennorm.config.detector_files import Named, detector_files
from tokennorm.config.open_config import read_config, unread_entries
from tokennorm.config.tree import innermost_datasets, set_num_classes, walk
from tokennorm.evaluation.tta import use_tta
from tokennorm.findings.elsewhere import UNREAD_ENTRY
from tokennorm.inference.embedded_config import embedded_config
from tokennorm.inference.runtime import (
    BaseDetector,
    Detections,
    ImageError,
    batches_of_one_shape,
    read_thresholds,
    thresholds_of,
)
from tokennorm.plan.changes import Plan
from tokennorm.plan.trained import use_trained_anchors, use_trained_size
from tokennorm.registry.compat import make_ssd_predict

_COCO_GAPS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}  # ids that COCO skips between its 80 classes, 1 to 90


class TorchDetector(BaseDetector):
    """A detector with the weights and the classes of a checkpoint.

    Its arguments are those of `Detector`.

    Attributes:
        checkpoint: File or URL of the checkpoint.
        description: One line about it.
        classes: Names of the classes.
        category_ids: Id of each class in the data that the detector was trained with.
        cfg: The config.
        model: mmdet's detector.
        opened_with: The files and options that it was opened with.
        tta: Whether test-time augmentation is on.

    Raises:
        UserError: for a config or a checkpoint that cannot be used.
    """

    def __init__(
        self,
        detector: str | Path,
        checkpoint: str | Path | None = None,
        device: str | None = None,
        options: Mapping[str, Any] | None = None,
        tta: bool = False,
    ) -> None:
        check_mmcv_ops()
        config, checkpoint = detector_files(detector, checkpoint)
        opened = Checkpoint.read(checkpoint)  # which other threads need not wait for
        is_inside = config == str(checkpoint)
        self.opened_with = Named(opened.source if is_inside else config, opened.source, dict(options or {}))
        self.tta = tta
        with alone():
            self._open(opened, device)

    def _open(self, opened: Checkpoint, device: str | None) -> None:
        """Builds the model of a checkpoint, with its weights."""
        config, is_inside = self.opened_with.config, self.opened_with.config == opened.source
        plan = Plan(embedded_config(opened) if is_inside else read_config(config), self.opened_with.cfg_options)
        plan.finish()
        self.cfg = plan.cfg
        for where, text in unread_entries(self.cfg):
            UNREAD_ENTRY.report(where, text)
        if self.cfg.get('default_scope') != 'mmdet':
            raise UserError(f'{config} is not a detector config: default_scope={self.cfg.get("default_scope")!r}')
        if self.tta:
            views, _ = use_tta(self.cfg)
        try:
            torch.empty(0, device=device)
        except (AssertionError, RuntimeError) as error:
            raise UserError(f'device {device} is not available: {str(error).splitlines()[0]}') from None
        self.checkpoint, self.description, meta = opened.source, str(opened), opened.dataset_meta
        if not meta.get('classes'):
            raise CheckpointError(
                f'{self.checkpoint} is not a checkpoint of a training run: it has no meta.dataset_meta.classes'
            )
        self.classes, self.category_ids = tuple(meta['classes']), category_ids_of(meta)
        self._thresholds = opened.meta.get('thresholds') or {}
        limits = walk(views if self.tta else self.cfg.model.get('test_cfg'))
        most = (part.get('max_per_img') or 0 for name, part in limits if 'rpn' not in name)
        self.most_detections = max(most, default=0) or None
        use_trained_anchors(plan, meta)
        use_trained_size(plan, meta)
        self._inferencer = _build(self.cfg, meta, device)
        self.model = self._inferencer.model
        if self.tta:
            self._inferencer.model = MODELS.build(dict(views, module=self.model)).eval()
        converted, _ = convert_detector(self.model, opened.state_dict, self.description)
        self.model.load_state_dict(converted)
        self.model.dataset_meta = dict(meta)

    def detect(self, images: Sequence[np.ndarray], batch_size: int = 1) -> list[Detections]:
        """Returns all detections of images (H, W, 3) uint8 BGR that the config's `test_cfg` keeps."""
        found: list[Any] = [None] * len(images)
        for batch in batches_of_one_shape([image.shape[:2] for image in images], batch_size):
            pixels = [images[i] for i in batch]
            try:
                with torch.autocast(next(self.model.parameters()).device.type, enabled=False):
                    samples = self._inferencer(pixels, len(batch), return_datasamples=True)['predictions']
            except cv2.error:
                height, width = pixels[0].shape[:2]
                raise ImageError(f'an image of {width} x {height} pixels is too narrow to resize') from None
            for i, sample in zip(batch, samples, strict=True):
                objects: Any = sample.pred_instances.cpu().numpy()
                masks = objects.masks.astype(bool) if 'masks' in objects else None
                found[i] = self.detections(objects.bboxes, objects.scores, objects.labels, masks)
        return found

    @property
    def recommended(self) -> list[float] | None:
        """Those in the checkpoint, or of the file next to it, which earlier versions wrote only."""
        if set(self.classes) <= set(self._thresholds):
            return [float(self._thresholds[name]) for name in self.classes]
        path = thresholds_of(self.checkpoint)
        return None if path is None else read_thresholds(path, self.classes)

    def __repr__(self) -> str:
        return self._shown(str(next(self.model.parameters()).device))


def category_ids_of(meta: Mapping[str, Any]) -> list[int]:
    """Returns the id of each class: the training data's, COCO's own for its 80 classes, or counted from 1."""
    classes = meta['classes']
    if 'category_ids' in meta:
        return list(meta['category_ids'])
    if len(classes) == 80 and classes[0] == 'person' and classes[-1] == 'toothbrush':
        return [i for i in range(1, 91) if i not in _COCO_GAPS]
    return list(range(1, len(classes) + 1))


def _build(cfg: Config, meta: Mapping[str, Any], device: str | None) -> DetInferencer:
    """Returns mmdet's inferencer of a config for the classes of a checkpoint, without its weights."""
    keep_mmengine_from_unpickling()
    make_ssd_predict()
    set_num_classes(cfg['model'], len(meta['classes']))
    if not cfg.get('test_dataloader'):
        cfg['test_dataloader'] = cfg['val_dataloader']
    dataset = next(innermost_datasets(cfg['test_dataloader']['dataset']))  # mmdet reads its classes and pipeline
    cfg['test_dataloader']['dataset'] = dict(dataset, metainfo=dict(meta))
    with build_errors():
        return _Inferencer(cfg, device=device, show_progress=False)


class _Inferencer(DetInferencer):
    """mmdet's, without drawings and mmengine's warning that mmdet has no registry of functions for the default one."""

    def _load_weights_to_model(self, model: nn.Module, checkpoint: Any, cfg: Config) -> None:
        """Nothing: weights and classes follow, and mmdet's warns that they are missing."""

    def _init_collate(self, cfg: Config) -> Callable:
        return pseudo_collate

    def _init_visualizer(self, cfg: Config) -> None:
        """None: mmengine's imports matplotlib, and `tokennorm.images.drawing` draws."""
