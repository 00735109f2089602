"""Rows of classes that a training run takes from its initial weights, by the names of the classes."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS
from torch import Tensor, nn

from tokennorm.checkpoints import Checkpoint
from tokennorm.checkpoints.class_rows import class_axes, describe_rows, rows_by_name, take_class_rows
from tokennorm.config.tree import class_counts, set_num_classes, walk
from tokennorm.engine.resume.random_state import preserved_generators
from tokennorm.findings import current

Rows = dict[str, Callable[[Tensor], Tensor]]


def class_rows(cfg: Config, model: nn.Module, checkpoint: Checkpoint, classes: list[str]) -> tuple[Rows, str]:
    """Returns the layers that get rows of a checkpoint by name (`take_class_rows`), and a line about them.

    Without names, with the same names in the same order, or with `--allow checkpoint-classes` there are none.
    """
    trained = classes_of(checkpoint)
    if not trained:
        return {}, 'classes: the checkpoint does not name its classes; their rows are taken in its order where they fit'
    rows, counts = rows_by_name(trained, classes), {count for _, count in class_counts(cfg.get('model'))}
    if rows == list(range(len(trained))) or 'checkpoint-classes' in current().allowed or not counts:
        return {}, ''
    try:
        if len(counts) > 1:
            raise ValueError(f'heads have {" and ".join(map(str, sorted(counts)))} classes')
        larger = _with_one_class_more(cfg.model, *counts)
    except Exception as error:  # of a detector that reads its backbone, whatever it raises
        unknown = f'the layers that count them are unknown ({type(error).__name__}: {error!s:.200})'
        return {}, f'classes: not those of the checkpoint; {unknown} and are taken as they are'
    axes, expected, old = class_axes(model, *counts, larger.state_dict()), model.state_dict(), checkpoint.state_dict
    found = take_class_rows(axes, expected, old, trained, classes)
    by_place = {key: axis for key, axis in axes.items() if key.startswith(tuple(_scores_of_objects(model)))}
    found |= take_class_rows(by_place, expected, old, *([str(i) for i in range(len(c))] for c in (trained, classes)))
    return found, describe_rows(rows) if found else ''


def classes_of(checkpoint: Checkpoint) -> list[str]:
    """Returns the classes of a checkpoint; those of COCO where only its config says so; [] if nothing does."""
    from mmdet.datasets import CocoDataset

    meta = checkpoint.meta
    is_coco = 'CocoDataset' in str(meta.get('cfg') or meta.get('config'))
    return list(checkpoint.dataset_meta.get('classes') or (CocoDataset.METAINFO['classes'] if is_coco else ()))


def _scores_of_objects(model: nn.Module) -> Iterator[str]:
    """Yields layers in which row 0 is of objects of any class, and the others are not read, and not of classes.

    Two-stage Deformable DETR chooses its queries by it (mmdet 3.3, `DeformableDETR.pre_decoder`), DINO by all rows.
    """
    from mmdet.models import DeformableDETRHead

    for name, head in model.named_modules():
        loss = getattr(head, 'loss_by_feat', None)
        is_one = getattr(loss, '__func__', None) is DeformableDETRHead.loss_by_feat
        if is_one and head.as_two_stage and not head.share_pred_layer:
            yield f'{name}.cls_branches.{head.num_pred_layer - 1}.'


def _with_one_class_more(model: Any, num_classes: int) -> nn.Module:
    """Builds a model with one class more, without the backbone, which counts no classes."""
    model = deepcopy(model)
    for _, part in walk(model):
        if part.get('backbone'):
            part['backbone'] = dict(type=nn.Identity)
    set_num_classes(model, num_classes + 1)
    with preserved_generators():
        return MODELS.build(model)
