"""What a study consists of: arms, seeds and stages, read from a config, and the config of each single run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmengine.config import Config

BASELINE = 'LN'
# The two fields that an arm sets in every config of the study, and nothing else.
ARMS: dict[str, dict[str, dict[str, Any]]] = {
    'LN': dict(token_norm_cfg=dict(type='LN', eps=1e-6), stem_cfg=dict(type='PatchEmbed')),
    'LN+DPN': dict(token_norm_cfg=dict(type='LN', eps=1e-6), stem_cfg=dict(type='DualPatchEmbed')),
    'DTN': dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='PatchEmbed')),
    'DTN+DPN': dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed')),
}
_STAGE_KEYS = {'config', 'metric', 'start'}


@dataclass(frozen=True)
class Stage:
    """A training that every arm does with every seed.

    `start` names the stage whose checkpoint of the same arm and seed the backbone starts from; None is a random start.
    """

    name: str
    config: Path
    metric: str
    start: str | None = None


@dataclass(frozen=True)
class Run:
    """One training: a stage, an arm, a seed."""

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
        data: Generated datasets: folder -> dict(maker='shapes' or 'shape_classes', and that maker's arguments).
        work_dir: Folder of all runs and of the report.
        notes: What a reader of its report should know, in Markdown.
        dry: Every training is two batches of two images, to see whether it runs.
    """

    config: Path
    title: str
    seeds: tuple[int, ...]
    stages: Mapping[str, Stage]
    data: Mapping[str, Mapping[str, Any]]
    work_dir: Path
    notes: str = ''
    dry: bool = False

    def runs(self) -> Iterator[Run]:
        """All runs: the arms of a seed follow each other, so that a study that was broken off has whole seeds."""
        for seed in self.seeds:
            for stage in self.stages:
                for arm in ARMS:
                    yield Run(stage, arm, seed)

    def folder(self, run: Run) -> Path:
        """The work folder of a run."""
        return self.work_dir / run.stage / run.arm.lower().replace('+', '-') / f'seed{run.seed}'

    def before(self, run: Run) -> Run | None:
        """The run whose weights a run starts from."""
        start = self.stages[run.stage].start
        return None if start is None else Run(start, run.arm, run.seed)

    def run_config(self, run: Run) -> Config:
        """The config of a run: its stage's, the arm's two fields, the seed, the work folder and the start.

        A checkpoint is saved every epoch, and the one before it kept.
        """
        cfg = Config.fromfile(self.stages[run.stage].config)
        for key, value in ARMS[run.arm].items():
            cfg.model.backbone[key] = dict(value)
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
        return cfg


def load_study(
    path: str | Path,
    work_dir: str | Path | None = None,
    cfg_options: Mapping[str, Any] | None = None,
    dry: bool = False,
) -> Study:
    """Reads a study's config.

    Args:
        path: A config with `title`, `seeds`, `stages` and, if wanted, `data`, `work_dir` and `notes`. The config files
            of its stages are named relative to it.
        work_dir: Goes before that of the config; without either it is work_dirs/study-NAME.
        cfg_options: Entries of the study's config to set.
        dry: The first seed alone, two batches a training, in a folder `dry-run` inside the work folder.

    Raises:
        FileNotFoundError: where the config or that of a stage is not there.
        ValueError: for a config that says too little or too much, with the key.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f'config {path} is not there')
    cfg = Config.fromfile(path)
    cfg.merge_from_dict(dict(cfg_options or {}))
    missing = {'title', 'seeds', 'stages'} - set(cfg)
    if missing:
        raise ValueError(f'{path} is no config of a study: it has no {", ".join(sorted(missing))}')
    seeds = tuple(cfg.seeds)
    if not seeds or len(set(seeds)) != len(seeds) or not all(isinstance(seed, int) and seed >= 0 for seed in seeds):
        raise ValueError(f'{path}: seeds={list(seeds)} must be different integers, none of them negative')
    stages = {}
    for name, entry in cfg.stages.items():
        if not {'config', 'metric'} <= set(entry) <= _STAGE_KEYS:
            raise ValueError(f'{path}: stages.{name} has {sorted(entry)}, wanted config, metric and perhaps start')
        stage = Stage(name, path.parent / entry['config'], entry['metric'], entry.get('start'))
        if not stage.config.is_file():
            raise FileNotFoundError(f'{path}: stages.{name}.config={stage.config} is not there')
        if stage.start is not None and stage.start not in stages:
            raise ValueError(f'{path}: stages.{name}.start={stage.start} must be an earlier stage: {list(stages)}')
        stages[name] = stage
    work_dir = Path(work_dir or cfg.get('work_dir') or Path('work_dirs') / f'study-{path.stem}')
    return Study(
        config=path,
        title=cfg.title,
        seeds=seeds[:1] if dry else seeds,
        stages=stages,
        data=cfg.get('data', {}),
        work_dir=work_dir / 'dry-run' if dry else work_dir,
        notes=cfg.get('notes', ''),
        dry=dry,
    )
