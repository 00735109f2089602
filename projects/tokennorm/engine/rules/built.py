"""What the rules about recipes look at, and how they are applied."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tokennorm.base.process import muted
from tokennorm.config.tree import as_list
from tokennorm.findings import JUDGEMENTS, current

# Of a config for --data; of any config before it is built; of what was built, its samples and its loops; of a
# checkpoint; of the schedule that was fitted to training; of a detector that is exported.
Phase = Literal['own data', 'config', 'built', 'samples', 'loops', 'checkpoint', 'schedule', 'export']
PHASES: tuple[Phase, ...] = get_args(Phase)
Lines = Iterator[tuple[Any, ...]]  # arguments of `Rule.report`: a place, a text, and what is affected


@dataclass
class Built:
    """The parts of a recipe. What is absent, such as data that was not downloaded, is not judged."""

    cfg: Mapping[str, Any]
    splits: Sequence[str] = ('train', 'val')
    model: Any = None
    data: Mapping[str, Any] = field(default_factory=dict)  # datasets by split
    metrics: Mapping[str, list[Any]] = field(default_factory=dict)  # of the evaluators, by split
    hooks: Sequence[Any] = ()
    loops: Mapping[str, Any] = field(default_factory=dict)  # by split
    schedulers: Sequence[Any] = ()
    checkpoint: Any = None  # a `tokennorm.checkpoints.Checkpoint`
    batch_size: int | None = None  # of the file to export

    @classmethod
    def of(cls, runner: Any, splits: Sequence[str], checkpoint: Any = None) -> 'Built':
        """Returns the parts of a runner, whose loops are built at first use."""
        from tokennorm.engine.distributed import unwrapped

        with muted():  # pycocotools prints four lines per file
            loops = {split: getattr(runner, f'{split}_loop') for split in splits}
        loops = {split: loop for split, loop in loops.items() if loop is not None}
        return cls(
            runner.cfg,
            splits,
            unwrapped(runner.model),
            {split: loop.dataloader.dataset for split, loop in loops.items()},
            {split: loop.evaluator.metrics for split, loop in loops.items() if hasattr(loop, 'evaluator')},
            runner.hooks,
            loops,
            configs_of(runner.param_schedulers),
            checkpoint,
        )


def judge(phase: Phase, built: Built) -> None:
    """Reports what all rules of a phase find."""
    for rule, find in JUDGEMENTS[phase]:
        for line in find(built):
            rule.report(*line)


def verify(phase: Phase, built: Built) -> None:
    """Applies all rules of a phase: prints the warnings, and raises the errors together."""
    judge(phase, built)
    current().show()
    current().stop()


def configs_of(schedulers: Any) -> list[Mapping[str, Any]]:
    """Returns the configs of schedulers, of which there may be one without a list."""
    return [entry for entry in as_list(schedulers) if isinstance(entry, Mapping)]
