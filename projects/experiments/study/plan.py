"""Plan of a study, read from a config: arms, seeds and stages, and the config of each run."""

import functools
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mmengine.config import Config

BASELINE = 'LN'
# Fields of the backbone that an arm sets. A field with a dot in its name is an entry of the whole config, and
# `allow_missing` one of the `init_cfg`. A study's config may add arms.
ARMS: dict[str, dict[str, dict[str, Any]]] = {
    'LN': dict(token_norm_cfg=dict(type='LN', eps=1e-6), stem_cfg=dict(type='PatchEmbed')),
    'LN+DPN': dict(token_norm_cfg=dict(type='LN', eps=1e-6), stem_cfg=dict(type='DualPatchEmbed')),
    'DTN': dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='PatchEmbed')),
    'DTN+DPN': dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed')),
}


@dataclass(frozen=True)
class Stage:
    """One task that is trained with each of its arms and seeds.

    Args:
        name: Name of its kept results and of its folder in the work directory.
        config: Config file of the training runs.
        metric: Metric of the tables, as the evaluator names it.
        title: Heading of its table.
        options: Entries of the config to set, as `--cfg-options` does.
        start: The stage whose weights, of the same seed, the backbone is initialized with; None is random.
        start_arm: The arm whose weights all arms are initialized with; None is the arm itself.
        arms: Names of the arms to train.
        seeds: Seeds of this stage, some of the study's; None is all of them.
    """

    name: str
    config: Path
    metric: str
    title: str = ''
    options: Mapping[str, Any] = field(default_factory=dict)
    start: str | None = None
    start_arm: str | None = None
    arms: tuple[str, ...] = tuple(ARMS)
    seeds: tuple[int, ...] | None = None

    def is_same_task(self, other: 'Stage') -> bool:
        """Returns whether both train the same config from the same weights."""
        keys = ('config', 'options', 'start', 'start_arm')
        return all(getattr(self, key) == getattr(other, key) for key in keys)


@dataclass(frozen=True)
class Run:
    """One training run: its stage, its arm and its seed."""

    stage: str
    arm: str
    seed: int

    def __str__(self) -> str:
        return f'{self.stage} {self.arm} seed {self.seed}'


@dataclass(frozen=True)
class Study:
    """A whole study.

    Args:
        config: The file that it was read from.
        seeds: Every arm is trained once with each.
        stages: In the order in which they are trained.
        arms: All arms by name.
        work_dir: Folder of all runs.
        data: Datasets to prepare: folder -> dict(maker=..., and the arguments of that maker in
            `experiments.study.data.MAKERS`).
        contrasts: Pairs of arms whose difference the tables have, in addition to the differences from LN.
        primary: The comparisons that were planned as primary: stage, arm, other arm.
        pools_runs: Whether the intervals of a stage take the deviation of the runs as equal in all of its arms.
    """

    config: Path
    seeds: tuple[int, ...]
    stages: Mapping[str, Stage]
    arms: Mapping[str, Mapping[str, Any]]
    work_dir: Path
    data: Mapping[str, Mapping[str, Any]]
    contrasts: tuple[tuple[str, str], ...] = ()
    primary: tuple[tuple[str, str, str], ...] = ()
    pools_runs: bool = False

    def runs(self) -> Iterator[Run]:
        """All runs, one seed after another, so that an interrupted study has complete seeds."""
        for seed in self.seeds:
            for stage in self.stages.values():
                if stage.seeds is None or seed in stage.seeds:
                    yield from (Run(stage.name, arm, seed) for arm in stage.arms)

    def runs_of(self, stage: Stage) -> Iterator[Run]:
        """The runs of a stage in the order of its table."""
        yield from (Run(stage.name, arm, seed) for arm in stage.arms for seed in stage.seeds or self.seeds)

    def home(self, run: Run) -> str:
        """The stage in whose folder a run is: the first one that trains the same with this arm and seed."""
        own = self.stages[run.stage]
        same = (s for s in self.stages.values() if s.is_same_task(own) and run.arm in s.arms)
        return next((s.name for s in same if run.seed in (s.seeds or self.seeds)), own.name)

    def is_extension(self, stage: Stage) -> bool:
        """Returns whether a stage also has runs of an earlier one, whose rows are in the tables already."""
        return any(self.home(run) != stage.name for run in self.runs_of(stage))

    def folder(self, run: Run) -> Path:
        """The work directory of a run."""
        return self.work_dir / self.home(run) / re.sub('[^a-z0-9.]+', '-', run.arm.lower()) / f'seed{run.seed}'

    def before(self, run: Run) -> Run | None:
        """The run whose weights a run is initialized with."""
        stage = self.stages[run.stage]
        return None if stage.start is None else Run(stage.start, stage.start_arm or run.arm, run.seed)

    def run_config(self, run: Run) -> Config:
        """The config of a run: its stage's, with the arm's fields, the seed, the work directory and `init_cfg`.

        Each epoch saves a checkpoint. The last two are kept.
        """
        stage = self.stages[run.stage]
        cfg = deepcopy(_read_config(stage.config))
        cfg.merge_from_dict(dict(stage.options))
        arm = dict(self.arms[run.arm])
        allow_missing = arm.pop('allow_missing', None)
        for key, value in arm.items():
            if '.' in key:
                cfg.merge_from_dict({key: value})
            else:
                cfg.model.backbone[key] = dict(value) if isinstance(value, Mapping) else value
        cfg.work_dir = str(self.folder(run))
        cfg.randomness = dict(seed=run.seed)
        cfg.default_hooks.checkpoint = dict(type='CheckpointHook', interval=1, max_keep_ckpts=2)
        cfg.model.backbone.init_cfg = None
        if before := self.before(run):
            cfg.model.backbone.init_cfg = dict(type='Pretrained', checkpoint=str(self.folder(before) / 'weights.pth'))
            if allow_missing:
                cfg.model.backbone.init_cfg['allow_missing'] = allow_missing
        return cfg


@functools.cache
def _read_config(path: Path) -> Config:
    return Config.fromfile(path)


def load_study(path: str | Path, work_dir: str | Path | None = None) -> Study:
    """Reads a study's config: `seeds`, `stages` and optionally other fields of `Study`.

    Args:
        path: The config. The config files of its stages are named relative to it.
        work_dir: The default is work_dirs/study-NAME.

    Raises:
        FileNotFoundError: if the study's config does not exist.
        ValueError: for a config that lacks entries, or names arms or stages that it does not have.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f'config {path} was not found')
    cfg = Config.fromfile(path)
    if missing := {'seeds', 'stages'} - set(cfg):
        raise ValueError(f'{path} is not the config of a study: it lacks {", ".join(sorted(missing))}')
    arms = {**ARMS, **{name: dict(values) for name, values in cfg.get('arms', {}).items()}}
    stages: dict[str, Stage] = {}
    known = {entry.name for entry in fields(Stage)} - {'name'}
    for name, entry in cfg.stages.items():
        if not {'config', 'metric'} <= set(entry) <= known:
            raise ValueError(f'{path}: stages.{name} has {sorted(entry)}, expected config, metric, or {sorted(known)}')
        given = {key: tuple(entry[key]) for key in ('arms', 'seeds') if key in entry}
        stage = Stage(**{**entry, **given, 'name': name, 'config': path.parent / entry['config']})
        if unknown := {*stage.arms, stage.start_arm or BASELINE} - set(arms):
            raise ValueError(f'{path}: stages.{name} names the arms {sorted(unknown)}, expected some of {list(arms)}')
        if stage.start is not None:
            needed = {stage.start_arm} if stage.start_arm else set(stage.arms)
            if stage.start not in stages or not needed <= set(stages[stage.start].arms):
                raise ValueError(f'{path}: stages.{name}.start={stage.start} must be an earlier stage with {needed}')
        stages[name] = stage
    return Study(
        config=path,
        seeds=tuple(cfg.seeds),
        stages=stages,
        arms=arms,
        work_dir=Path(work_dir or Path('work_dirs') / f'study-{path.stem}'),
        data=cfg.get('data', {}),
        contrasts=tuple(map(tuple, cfg.get('contrasts', ()))),
        primary=tuple(map(tuple, cfg.get('primary', ()))),
        pools_runs=cfg.get('pools_runs', False),
    )
