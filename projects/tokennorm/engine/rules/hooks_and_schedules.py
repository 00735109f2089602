"""Rules about optimizers, hooks, metrics, loops and schedules."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from tokennorm.base.messages import counted, did_you_mean
from tokennorm.base.type_name import type_name
from tokennorm.engine.rules.built import Built, Lines
from tokennorm.findings import rule

FEW_ITERATIONS = 40  # 5% of fewer, the longest warm-up of `plan.schedule`, is less than two, and there is none
_FROM_1 = ('val_begin', 'begin_epoch', 'action_epoch', 'save_begin')  # these count epochs from 1
_FROM_0 = ('switch_epoch', 'num_last_epochs')
_BY_SUBSTRING = 'None', 'DefaultOptimWrapperConstructor', 'LayerDecayOptimWrapperConstructor'


# ---- optimizer


@rule('idle-custom-keys', 'warning', 'entries of custom_keys match no parameter that is trained', on='built',
      about='config', why='These rules do nothing. They may be those of another backbone or norm.',
      do='Correct or remove them')  # fmt: skip
def idle_custom_keys(built: Built) -> Lines:
    wrapper = built.cfg.get('optim_wrapper')
    if not isinstance(wrapper, Mapping) or 'train' not in built.splits:
        return
    given = (wrapper.get('paramwise_cfg') or {}).get('custom_keys')
    if given and type_name(dict(type=wrapper.get('constructor'))) in _BY_SUBSTRING:
        names = [name for name, parameter in built.model.named_parameters() if parameter.requires_grad]
        parts = {part for name in names for part in name.split('.')}
        keys = sorted(sorted(given), key=len, reverse=True)  # the first one that matches counts (mmengine 0.10.12)
        used = {next((key for key in keys if key in f'.{name}'), None) for name in names}
        if idle := [f'{key!r}{did_you_mean(key, parts)}' for key in given if key not in used]:
            yield 'optim_wrapper.paramwise_cfg.custom_keys', '', idle


# ---- hooks


@rule('late-stages', 'warning', 'stages begin after the last epoch', on='built', about='config',
      why='They never happen, such as the switch of a pipeline for the last epochs.',
      do='Lower them, or train longer')  # fmt: skip
def late_stages(built: Built) -> Lines:
    epochs = (built.cfg.get('train_cfg') or {}).get('max_epochs')
    most = {**dict.fromkeys(_FROM_1, epochs), **dict.fromkeys(_FROM_0, epochs and epochs - 1)}
    parts = [hook for hook in built.hooks if getattr(hook, 'by_epoch', True)] + list(built.loops.values())
    late = [
        f'{type(part).__name__}.{key}={vars(part)[key]}'
        for part in (parts if epochs else ())
        for key in most
        if type(vars(part).get(key)) is int and vars(part)[key] > most[key]
    ]
    if late:
        yield '', f'training has {counted(epochs, "epoch")}, so that these never happen', late


# ---- metrics


def _names(metric: Any, classes: Any) -> set[str] | None:
    """Returns the names of the values that a metric gives, or None where that is not known."""
    from mmdet.evaluation import CocoMetric as MMDetCocoMetric

    from tokennorm.evaluation.coco_metric import CocoMetric
    from tokennorm.plan.hooks import coco_metrics

    if type(metric) not in (CocoMetric, MMDetCocoMetric):
        return None
    names = [f'{metric.prefix}/{name}_precision' for name in classes] if metric.classwise else []
    return {*names, *coco_metrics(metric.prefix, metric.metrics, metric.metric_items)}


def _known_metrics(built: Built) -> list[str]:
    """Returns all metrics of validation, or [] where they are not known, as with a loop that names them anew."""
    from mmengine.runner import ValLoop

    from tokennorm.checkpoints.safe_reading import common_meta

    loop, meta = built.loops.get('val'), common_meta(getattr(built.data.get('val'), 'metainfo', None))
    names = [_names(metric, meta.get('classes') or ()) for metric in built.metrics.get('val', ())]
    wrapper = built.cfg.get('val_evaluator')  # others than mmengine's usual one give other names, such as of datasets
    renames = isinstance(wrapper, Mapping) and 'metrics' in wrapper and type_name(wrapper) not in ('None', 'Evaluator')
    is_plain = not renames and (loop is None or getattr(type(loop), 'run', None) is ValLoop.run)
    return sorted(set().union(*names)) if names and None not in names and is_plain else []


def _watched(built: Built) -> Iterator[tuple[str, str]]:
    """Yields what reads a metric, and its name."""
    for hook in built.hooks:
        for name in [*(getattr(hook, 'key_indicators', None) or ()), getattr(hook, 'monitor', None)]:
            if isinstance(name, str) and name != 'auto':
                yield type(hook).__name__, name
    plateaus = [scheduler for scheduler in built.schedulers if 'Plateau' in type_name(scheduler)]
    yield from ((type_name(plateau), plateau.get('monitor', 'loss')) for plateau in plateaus)  # mmengine's default


@rule('unknown-metric', 'error', 'validation does not give a metric that a hook or a scheduler reads', on='built',
      about='config', can_allow=False, why='Training would end with a KeyError at the first validation.',
      do='Set one of those that there are')  # fmt: skip
def unknown_metric(built: Built) -> Lines:
    if known := _known_metrics(built):
        for where, name in _watched(built):
            if name not in known:
                yield where, f'validation has no metric {name}{did_you_mean(name, known)}; there are {", ".join(known)}'


@rule('no-mask-head', 'error', 'validation is by masks, and the model predicts none', on='built', about='config',
      can_allow=False, why='Training would end with a KeyError at the first validation.',
      do="Set metric='bbox' of the evaluator, or take a model that learns masks")  # fmt: skip
def no_mask_head(built: Built) -> Lines:
    has_masks = any('mask' in name for name, _ in built.model.named_modules())
    for split, metrics in built.metrics.items() if not has_masks else ():
        if any('segm' in getattr(metric, 'metrics', ()) for metric in metrics):
            yield f'{split}_evaluator.metric', 'it has segm, and this model predicts no masks'


# ---- loops and schedules


@rule('no-batch', 'error', 'an epoch has no batch', on='loops', about='config', can_allow=False,
      why='With drop_last, too few images give no batch, and nothing is trained.',
      do='Use a --batch-size of at most the number of images')  # fmt: skip
def no_batch(built: Built) -> Lines:
    with suppress(TypeError):  # of a sampler without a length
        if 'train' in built.loops and not len(loader := built.loops['train'].dataloader):
            batch = loader.batch_sampler.batch_size
            yield 'train_dataloader', f'{len(loader.dataset)} images give no batch of {batch} with drop_last'


@rule('endless-warm-up', 'warning', 'the warm-up is longer than training', on='schedule', about='config',
      why='The learning rate never reaches its value.', do='Shorten the warm-up')  # fmt: skip
def endless_warm_up(built: Built) -> Lines:
    from tokennorm.plan.schedule import is_warm_up

    loop = built.loops['train']
    units = {True: len(loop.dataloader), False: 1}  # iterations per epoch or iteration
    warm_ups = [scheduler for scheduler in built.schedulers if is_warm_up(scheduler)]
    ends = [round(warm_up['end'] * units[warm_up.get('by_epoch', True)]) for warm_up in warm_ups]
    if (longest := max(ends, default=0)) > loop.max_iters:
        text = f'the warm-up has {counted(longest, "iteration")}, and training {loop.max_iters}: it never ends'
        yield 'param_scheduler', text


@rule('few-iterations', 'warning', 'training has few iterations', on='schedule', about='config',
      why=f'In fewer than {FEW_ITERATIONS} a detector learns little.',
      do='Train longer, or with a smaller --batch-size')  # fmt: skip
def few_iterations(built: Built) -> Lines:
    loop = built.loops['train']
    if loop.max_iters < FEW_ITERATIONS:
        yield 'train_cfg', f'{counted(loop.max_iters, "iteration")} in all, {len(loop.dataloader)} per epoch'
