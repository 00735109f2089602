"""Plan of a study: arms, seeds and stages, read from a config, and the config of each run."""

import functools
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mmengine.config import Config

BASELINE = 'LN'
# The fields of the backbone that an arm sets in every config of the study, and nothing else. A study's config may add
# arms. A field with a dot in its name is an entry of the whole config, and `allow_missing` one of the `init_cfg`.
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
        name: Name in the report and in the work directory.
        config: Config file of the training runs.
        metric: Metric of the tables, as the evaluator names it.
        title: Heading in the report; empty for the name.
        options: Entries of the config to set, as `--cfg-options` does.
        start: The stage whose weights, of the same seed, the backbone is initialized with; None is random.
        start_arm: The arm whose weights all arms are initialized with; None is the arm itself.
        arms: Names of the arms to train.
        seeds: Seeds of this stage, some of the study's; None is all of them.
        paper: Table, model and data of `paper_values`.
        paper_values: Published values, arm -> number or text, which the report's table has in a column of their own.
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
    paper: str = ''
    paper_values: Mapping[str, float | str] = field(default_factory=dict)

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
        title: Heading of its report.
        seeds: Every arm is trained once with each.
        stages: In the order in which they are trained.
        data: Datasets to prepare: folder -> dict(maker=..., and the arguments of that maker of
            `experiments.study.data.MAKERS`).
        work_dir: Folder of all runs and of the report.
        notes: Conditions that a reader of the report needs, in Markdown.
        findings: Conclusions, in Markdown, at the top of the report.
        page: Name of the report without `.md`.
        inside: The stage of the report's figures of LN and DTN from inside the network; empty for none.
        summary: Stages of the report's first figure; empty for all that have several seeds.
        contrasts: Pairs of arms whose difference the report has, in addition to the differences from LN.
        dry: Every training run has two batches of two images, as a check that it works.
        arms: All arms by name, with the fields of the backbone, or entries of the config, that each of them sets.
    """

    config: Path
    title: str
    seeds: tuple[int, ...]
    stages: Mapping[str, Stage]
    data: Mapping[str, Mapping[str, Any]]
    work_dir: Path
    notes: str = ''
    findings: str = ''
    page: str = 'study'
    inside: str = ''
    summary: tuple[str, ...] = ()
    contrasts: tuple[tuple[str, str], ...] = ()
    dry: bool = False
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: dict(ARMS))

    def runs(self) -> Iterator[Run]:
        """All runs, one seed after another, so that an interrupted study has complete seeds."""
        for seed in self.seeds:
            for stage in self.stages.values():
                if stage.seeds is None or seed in stage.seeds:
                    yield from (Run(stage.name, arm, seed) for arm in stage.arms)

    def home(self, run: Run) -> str:
        """The stage in whose folder a run is: the first one that trains the same with this arm and seed."""
        own = self.stages[run.stage]
        same = (s for s in self.stages.values() if s.is_same_task(own) and run.arm in s.arms)
        return next((s.name for s in same if run.seed in (s.seeds or self.seeds)), own.name)

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
        if self.dry:
            cfg.train_cfg.update(max_epochs=1, val_interval=1)
            for loader, images in ((cfg.train_dataloader, 4), (cfg.val_dataloader, 2)):
                loader.update(batch_size=2, num_workers=0, persistent_workers=False)
                loader.dataset.indices = images
        before = self.before(run)
        if before is None:
            cfg.model.backbone.init_cfg = None
        else:
            cfg.model.backbone.init_cfg = dict(type='Pretrained', checkpoint=str(self.folder(before) / 'weights.pth'))
            if allow_missing:
                cfg.model.backbone.init_cfg['allow_missing'] = allow_missing
        return cfg


@functools.cache
def _read_config(path: Path) -> Config:
    return Config.fromfile(path)


def load_study(
    path: str | Path,
    work_dir: str | Path | None = None,
    cfg_options: Mapping[str, Any] | None = None,
    dry: bool = False,
) -> Study:
    """Reads a study's config.

    Args:
        path: A config with `title`, `seeds`, `stages` and optionally `data`, `work_dir`, `arms`, `contrasts`, `page`,
            `summary`, `inside`, `findings` and `notes`. The config files of its stages are named relative to it.
        work_dir: Takes precedence over the config's; the default is work_dirs/study-NAME.
        cfg_options: Entries of the study's config to set.
        dry: Only the first seed, two batches per run, in a folder `dry-run` inside the work directory.

    Raises:
        FileNotFoundError: if the study's config or the config of a stage does not exist.
        ValueError: for a config with missing, unknown or contradictory entries.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f'config {path} was not found')
    cfg = Config.fromfile(path)
    cfg.merge_from_dict(dict(cfg_options or {}))
    missing = {'title', 'seeds', 'stages'} - set(cfg)
    if missing:
        raise ValueError(f'{path} is not the config of a study: it lacks {", ".join(sorted(missing))}')
    seeds = tuple(cfg.seeds)
    if not seeds or len(set(seeds)) != len(seeds) or not all(isinstance(seed, int) and seed >= 0 for seed in seeds):
        raise ValueError(f'{path}: seeds={list(seeds)} must be different integers, none of them negative')
    arms = {**ARMS, **{name: dict(fields) for name, fields in cfg.get('arms', {}).items()}}
    if unknown := set(cfg.get('summary', ())) - set(cfg.stages):
        raise ValueError(f'{path}: summary names {sorted(unknown)}, expected some of {list(cfg.stages)}')
    work_dir = Path(work_dir or cfg.get('work_dir') or Path('work_dirs') / f'study-{path.stem}')
    return Study(
        config=path,
        title=cfg.title,
        seeds=seeds[:1] if dry else seeds,
        stages=_load_stages(path, cfg.stages, arms),
        data=cfg.get('data', {}),
        work_dir=work_dir / 'dry-run' if dry else work_dir,
        notes=cfg.get('notes', ''),
        findings=cfg.get('findings', ''),
        page=cfg.get('page', 'study'),
        inside=cfg.get('inside', ''),
        summary=tuple(cfg.get('summary', ())),
        contrasts=tuple((one, other) for one, other in cfg.get('contrasts', ())),
        dry=dry,
        arms=arms,
    )


def _load_stages(path: Path, entries: Mapping[str, Any], arms: Mapping[str, Any]) -> dict[str, Stage]:
    stages: dict[str, Stage] = {}
    known = {entry.name for entry in fields(Stage)} - {'name'}
    for name, entry in entries.items():
        if not {'config', 'metric'} <= set(entry) <= known:
            raise ValueError(
                f'{path}: stages.{name} has {sorted(entry)}, expected some of {sorted(known)} with config and metric'
            )
        given = {key: tuple(entry[key]) for key in ('arms', 'seeds') if key in entry}
        stage = Stage(**{**entry, **given, 'name': name, 'config': path.parent / entry['config']})
        if not stage.config.is_file():
            raise FileNotFoundError(f'{path}: stages.{name}.config={stage.config} was not found')
        if stage.start is not None and stage.start not in stages:
            raise ValueError(f'{path}: stages.{name}.start={stage.start} must be an earlier stage: {list(stages)}')
        unknown = [arm for arm in (*stage.arms, *stage.paper_values, stage.start_arm or BASELINE) if arm not in arms]
        if unknown:
            raise ValueError(f'{path}: stages.{name} names the arms {unknown}, expected some of {list(arms)}')
        if stage.start is not None:
            lacking = {stage.start_arm} if stage.start_arm else set(stage.arms)
            lacking -= set(stages[stage.start].arms)
            if lacking:
                raise ValueError(
                    f'{path}: stages.{stage.start} does not train the arms {sorted(lacking)} that {name} needs'
                )
        stages[name] = stage
    return stages
