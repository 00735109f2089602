"""Opens a trained detector, draws its detections, and returns them in COCO's format."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmdet.apis import DetInferencer
from mmdet.structures import DetDataSample
from mmdet.structures.mask import encode_mask_results
from mmengine.config import Config
from mmengine.dataset import pseudo_collate

from tokennorm.checkpoints import CheckpointError, convert_detector, find_checkpoint, read_checkpoint
from tokennorm.checkpoints.reading import describe, keep_mmengine_from_unpickling, state_dict_in, trained_meta
from tokennorm.config.build_errors import build_errors
from tokennorm.config.image_size import use_trained_size
from tokennorm.config.reading import read_config, use_options
from tokennorm.config.tree import set_num_classes
from tokennorm.environment import check_mmcv_ops
from tokennorm.evaluation.thresholds import NAME, read_thresholds
from tokennorm.inference.tiles import detect_in_tiles
from tokennorm.inference.tracking import Tracker, draw_tracks

_COCO_GAPS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}  # ids that COCO skips between its 80 classes, 1 to 90


def open_detector(
    config: str | Path, checkpoint: str | Path, device: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[DetInferencer, Config, str]:
    """Returns the inferencer of `build_inferencer`, its config, and the file or URL of the checkpoint."""
    check_mmcv_ops()
    cfg = read_config(config)
    use_options(cfg, options)
    if cfg.get('default_scope') != 'mmdet':
        raise ValueError(f'{config} is not a detector config: default_scope={cfg.get("default_scope")!r}')
    found = find_checkpoint(checkpoint)
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        raise ValueError(f'--device {device} is not available: {str(error).splitlines()[0]}') from None
    return build_inferencer(cfg, found, device), cfg, found


def build_inferencer(cfg: Config, checkpoint: str, device: str | None = None) -> DetInferencer:
    """Returns mmdet's inferencer of a config, with the weights and the classes of a checkpoint.

    The heads get as many classes as the checkpoint was trained with, so that the config may name other data. Images are
    resized as in training.
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
    with build_errors(), warnings.catch_warnings():  # about missing weights and classes, which follow
        warnings.simplefilter('ignore')
        inferencer = _Inferencer(cfg, device=device, show_progress=False)
    state_dict = state_dict_in(content, checkpoint)
    converted, _ = convert_detector(inferencer.model, state_dict, describe(content, checkpoint))
    inferencer.model.load_state_dict(converted)
    inferencer.model.dataset_meta = inferencer.visualizer.dataset_meta = dict(meta)
    return inferencer


class _Inferencer(DetInferencer):
    """mmdet's, without mmengine's warning that mmdet has no registry of functions to look up the default one."""

    def _init_collate(self, cfg: Config) -> Callable:
        return pseudo_collate


class Trained:
    """A checkpoint with the options of `tokennorm predict`.

    Attributes:
        classes, category_ids: Of each label.
        lowest: The lowest score that is drawn.
        has_thresholds: Whether the training run recommends thresholds.
    """

    def __init__(
        self,
        config: str,
        checkpoint: str,
        device: str | None = None,
        cfg_options: Mapping[str, Any] | None = None,
        score_thr: float = 0.3,
        thresholds: str | None = None,
        tiles: int | None = None,
        overlap: float = 0.2,
        batch_size: int = 1,
    ) -> None:
        self.inferencer, _, found = open_detector(config, checkpoint, device, cfg_options)
        print(f'Checkpoint: {describe(read_checkpoint(found), found)}', flush=True)
        meta = self.inferencer.model.dataset_meta
        self.classes, self.category_ids = meta['classes'], category_ids_of(meta)
        self.has_thresholds = Path(found).with_name(NAME).is_file()
        self.thresholds = None if thresholds is None else read_thresholds(thresholds, found, self.classes)
        self.lowest = min(self.thresholds or [score_thr])  # all that `thresholds` keep is drawn
        self.tiles, self.tiling = tiles, (overlap, batch_size)
        self.tracker: Tracker | None = None

    def track(self, frame_rate: float) -> None:
        """Gives objects ids across the images."""
        self.tracker = Tracker(frame_rate, self.lowest)

    def detect(self, images: list[np.ndarray]) -> list[DetDataSample | None]:
        """Returns the detections on each image (H, W, 3) uint8 BGR; None for one too thin to resize."""
        try:
            if self.tiles is not None:
                samples = [detect_in_tiles(self.inferencer, image, self.tiles, *self.tiling) for image in images]
            else:
                samples = self.inferencer(images, len(images), return_datasamples=True)['predictions'] if images else []
        except cv2.error:
            return [None] if len(images) == 1 else [self.detect([image])[0] for image in images]
        for sample in samples:
            if self.tracker is not None:
                self.tracker.update(sample)
            if self.thresholds is not None:
                found = sample.pred_instances
                sample.pred_instances = found[found.scores >= found.scores.new_tensor(self.thresholds)[found.labels]]
        return samples

    def annotations(self, found: DetDataSample) -> list[dict[str, Any]]:
        """Returns detections as `coco_annotations`."""
        return coco_annotations(found, self.category_ids)

    def draw(self, image: np.ndarray, found: DetDataSample) -> np.ndarray:
        """Returns the image with the detections of at least `lowest`, and the ids of tracks."""
        pixels = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        self.inferencer.visualizer.add_datasample(
            'prediction', pixels, found, draw_gt=False, pred_score_thr=self.lowest
        )
        image = cv2.cvtColor(self.inferencer.visualizer.get_image(), cv2.COLOR_RGB2BGR)
        return draw_tracks(image, found, self.lowest) if self.tracker is not None else image


def coco_annotations(sample: DetDataSample, category_ids: Sequence[int]) -> list[dict[str, Any]]:
    """Returns all detections of an image in COCO's format, without `id` and `image_id`."""
    found = sample.pred_instances.cpu()
    annotations = []
    for i, (x1, y1, x2, y2) in enumerate(found.bboxes.tolist()):
        bbox = [round(value, 2) for value in (x1, y1, x2 - x1, y2 - y1)]
        area = round((x2 - x1) * (y2 - y1), 2)
        category, score = category_ids[found.labels[i]], round(found.scores[i].item(), 5)
        one = dict(category_id=category, bbox=bbox, area=area, iscrowd=0, score=score)
        if 'masks' in found:
            (mask,) = encode_mask_results(found.masks[i : i + 1])
            one['segmentation'] = dict(size=list(mask['size']), counts=mask['counts'].decode())
        if 'track_ids' in found:
            one['track_id'] = found.track_ids[i].item()
        annotations.append(one)
    return annotations


def category_ids_of(meta: Mapping[str, Any]) -> list[int]:
    """Returns the id of each class: the training data's, COCO's own for its 80 classes, or counted from 1."""
    classes = meta['classes']
    if 'category_ids' in meta:
        return list(meta['category_ids'])
    if len(classes) == 80 and classes[0] == 'person' and classes[-1] == 'toothbrush':
        return [i for i in range(1, 91) if i not in _COCO_GAPS]
    return list(range(1, len(classes) + 1))
