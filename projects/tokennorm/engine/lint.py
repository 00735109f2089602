"""`tokennorm check CONFIG`: the rules about recipes, applied to a config of any OpenMMLab detector without training."""

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import DATASETS, HOOKS, METRICS, MODELS, init_default_scope
from mmengine.visualization import Visualizer

from tokennorm.base.messages import user_errors
from tokennorm.base.process import alone
from tokennorm.config.build_errors import build_errors
from tokennorm.config.open_config import read_config
from tokennorm.config.tree import evaluators, walk
from tokennorm.engine.rules.built import Built, Phase, configs_of, judge
from tokennorm.engine.rules.datasets_and_loaders import annotation_files
from tokennorm.findings import JUDGEMENTS, Findings, judging, rules_about
from tokennorm.plan.data import limit_detections
from tokennorm.plan.hooks import use_common_hooks
from tokennorm.registry import arguments_of

SPLITS = ('train', 'val', 'test')


@alone()
def lint(name: str | Path, allow: tuple[str, ...] = (), strict: bool = False) -> tuple[Findings, list[str], list[str]]:
    """Returns the findings of a config, the splits whose data is not on this machine, and the rules left out.

    No file is written, and no weights are read, but those that a class loads when it is built, such as a teacher's.

    Raises:
        UserError: for a config that cannot be read, and for a part that cannot be built.
    """
    with judging(Findings(allow, strict)) as findings:
        cfg = read_config(name)
        findings.allow(cfg.get('allow') or ())
        init_default_scope(cfg.get('default_scope') or 'mmengine')
        there = [split for split in SPLITS if cfg.get(f'{split}_dataloader') and _is_there(cfg, split)]
        phases: list[Phase] = ['config', 'built', *(['samples'] if 'train' in there else [])]
        judge('config', Built(cfg, there))
        with (
            user_errors(OSError, where='the config cannot be built without its files: '),
            build_errors('it cannot be used'),
        ):
            built = build_parts(cfg, there)
        for phase in phases[1:]:
            judge(phase, built)
    applied = [rule for phase in phases for rule, _ in JUDGEMENTS[phase]]
    left_out = [rule.code for rule in rules_about('config', 'checkpoint') if rule not in applied]
    return findings, [split for split in SPLITS if cfg.get(f'{split}_dataloader') and split not in there], left_out


def _is_there(cfg: Config, split: str) -> bool:
    """Returns whether all files of a split exist; a split at a URL is not checked."""
    count = str(cfg[f'{split}_dataloader']).count('ann_file')
    paths = [path for _, _, path in annotation_files(cfg, (split,))]
    return bool(paths or not count) and all(path.exists() for path in paths)


def build_parts(cfg: Config, there: list[str]) -> Built:
    """Builds model, hooks and evaluators of a config, and the datasets that are there."""
    parts = deepcopy(cfg)
    if parts.get('data_preprocessor'):
        parts.model.setdefault('data_preprocessor', parts.data_preprocessor)
    limit_detections(parts.model)
    use_common_hooks(parts)
    Visualizer.get_instance('lint')  # which hooks ask for
    hooks = [*(parts.get('default_hooks') or {}).values(), *(parts.get('custom_hooks') or ())]
    return Built(
        cfg,
        ('train', 'val'),
        MODELS.build(parts.model),
        dict(_datasets(parts, there)),
        {split: list(_metrics(parts, split)) for split in ('val', 'test')},
        [HOOKS.build({key: value for key, value in hook.items() if key != 'priority'}) for hook in hooks if hook],
        schedulers=configs_of(parts.get('param_scheduler')),
    )


def _datasets(cfg: Config, there: list[str]) -> Iterator[tuple[str, Any]]:
    """Yields the datasets by split. Where the data does not exist, they have their classes and their pipeline only."""
    for split in SPLITS:
        dataset = (cfg.get(f'{split}_dataloader') or {}).get('dataset')
        parts = [part for _, part in walk(dataset) if {'dataset', 'datasets', 'ann_file'} & set(part)]
        can_be_lazy = parts and all(
            'lazy_init' in arguments_of(part, cfg.get('default_scope'), DATASETS) for part in parts
        )
        for part in parts if split not in there else ():
            part['lazy_init'] = True
        with nullcontext() if split in there else suppress(FileNotFoundError):  # some wrappers count their images
            if split in there or can_be_lazy:
                yield split, DATASETS.build(dataset)


def _metrics(cfg: Config, split: str) -> Iterator[Any]:
    """Yields the metrics of a split; for one whose data or package is missing a plain object, which tells nothing."""
    for entry in evaluators(cfg, split):
        given = dict(entry)
        if 'ann_file' in given and not Path(str(given['ann_file'])).is_file():
            given['ann_file'] = None
        try:
            yield METRICS.build(given)
        except Exception:
            if not arguments_of(given, cfg.get('default_scope'), METRICS):
                raise
            yield object()
