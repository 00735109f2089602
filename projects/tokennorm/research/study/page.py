"""Writes the report of a study, finished or not: tables, curves and conditions, as Markdown and pictures."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tokennorm.research.study.plan import ARMS, BASELINE, Run, Stage, Study
from tokennorm.research.study.records import read_record
from tokennorm.research.study.statistics import Difference, paired_difference, summarise

Records = dict[tuple[str, int], dict[str, Any]]  # of a stage, by arm and seed
# Means over the other factor, of the arms with the factor less those without it.
FACTORS = {
    'DTN instead of LN, mean of both stems': (('DTN', 'DTN+DPN'), ('LN', 'LN+DPN')),
    'DPN instead of the plain stem, mean of both norms': (('LN+DPN', 'DTN+DPN'), ('LN', 'DTN')),
}
_LIMITS = """Read them as small-scale evidence from these conditions, not as COCO results. A spread over {seeds} seeds
is itself uncertain; with so few pairs a 95% t interval is wide, and one that includes 0 says that this study shows no
difference, not that there is none. The intervals are not corrected for the number of comparisons: of twenty such
intervals without any effect behind them one leaves out 0 by chance."""
_EQUAL = """An arm differs from the others in `token_norm_cfg` and `stem_cfg` of the backbone and in nothing else (LN
has PVT's eps of 1e-6, DTN its own of 1e-5). For the same seed all arms have the same order of images, the same random
numbers for augmentation, and the same initial values of every parameter and buffer that they share by name and shape
(DPN's projection is of another shape and has its own). A detector starts from the pretraining of the same arm and seed.
Of every training the last epoch counts, not the best one."""


def write_report(study: Study) -> Path:
    """Writes `study.md` and `<stage>.png` into the study's work folder, of the runs that are finished.

    Returns:
        Path of study.md.
    """
    study.work_dir.mkdir(parents=True, exist_ok=True)
    records = {name: read_records(study, name) for name in study.stages}
    title = f'{study.title} (dry run: two iterations a training)' if study.dry else study.title
    lines = [f'# {title}', '', *_status(study, records), '']
    for name, stage in study.stages.items():
        finished = {key: record for key, record in records[name].items() if record['finished']}
        lines += [f'## {name}: {stage.metric}', '']
        if not finished:
            lines += ['No run is finished.', '']
            continue
        plot_curves(study.work_dir / f'{name}.png', records[name], stage.metric)
        lines += [*_table(study, stage, finished), '', *_differences(study, stage, finished), '']
        lines += [f'![{stage.metric} against epochs: mean and range of each arm]({name}.png)', '']
    lines += ['## What the figures can say', '', _LIMITS.format(seeds=len(study.seeds)), '']
    lines += ['## Conditions', '', _EQUAL, '', study.notes, '', *_conditions(study, records)]
    path = study.work_dir / 'study.md'
    path.write_text('\n'.join(lines).rstrip() + '\n', encoding='utf-8')
    return path


def copy_report(study: Study, folder: Path) -> list[Path]:
    """Copies study.md and its pictures into a folder, such as docs/study; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ['study.md', *(f'{name}.png' for name in study.stages)]
    return [Path(shutil.copy(study.work_dir / name, folder)) for name in names if (study.work_dir / name).is_file()]


def read_records(study: Study, stage: str) -> Records:
    """The records of the runs of a stage that have begun."""
    runs = [Run(stage, arm, seed) for arm in ARMS for seed in study.seeds]
    found = {(run.arm, run.seed): read_record(study.folder(run)) for run in runs}
    return {key: record for key, record in found.items() if record is not None}


def value_at(record: Mapping[str, Any], epoch: int, metric: str) -> float:
    """The metric after an epoch. CocoMetric gives none where a detector found nothing, which is an AP of 0."""
    values = record['curve'][str(epoch)]
    return values.get(metric, 0.0) if metric.startswith('coco/') else values[metric]


def final_value(record: Mapping[str, Any], metric: str) -> float:
    """The metric at the last epoch of a finished run."""
    return value_at(record, record['epochs'], metric)


def factor_difference(values: Mapping[tuple[str, int], float], factor: str) -> Difference | None:
    """The effect of one of `FACTORS`, over the seeds that have all four arms; None where there is no such seed."""
    with_it, without_it = FACTORS[factor]
    seeds = sorted({seed for _, seed in values if all((arm, seed) in values for arm in ARMS)})
    means = [[sum(values[arm, seed] for arm in arms) / 2 for seed in seeds] for arms in (with_it, without_it)]
    return paired_difference(*means) if seeds else None


def plot_curves(path: Path, records: Records, metric: str) -> None:
    """The metric against epochs: the mean of each arm's seeds as a line, smallest to largest as a band."""
    figure = Figure(figsize=(8, 4.5), layout='constrained')
    axes = figure.subplots()
    for i, arm in enumerate(ARMS):
        own = [record for (name, _), record in records.items() if name == arm and record['finished']]
        epochs = sorted(set.intersection(*(set(map(int, record['curve'])) for record in own))) if own else []
        values = [[value_at(record, epoch, metric) for record in own] for epoch in epochs]
        axes.plot(epochs, [sum(v) / len(v) for v in values], color=f'C{i}', label=f'{arm} ({len(own)} seeds)')
        axes.fill_between(epochs, [min(v) for v in values], [max(v) for v in values], color=f'C{i}', alpha=0.15, lw=0)
    axes.set(xlabel='epoch', ylabel=metric)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)


def _status(study: Study, records: Mapping[str, Records]) -> list[str]:
    total = len(study.stages) * len(ARMS) * len(study.seeds)
    done = sum(record['finished'] for found in records.values() for record in found.values())
    seconds = sum(record['seconds'] for found in records.values() for record in found.values())
    seeds = ', '.join(map(str, study.seeds))
    text = f'{done} of {total} trainings are finished: {len(ARMS)} arms, {len(study.stages)} stages, seeds {seeds}.'
    return [f'{text} They took {seconds / 60:.0f} minutes of training together.']


def _table(study: Study, stage: Stage, finished: Records) -> list[str]:
    seeds = ' | '.join(f'seed {seed}' for seed in study.seeds)
    rows = [
        f'| arm | mean ± deviation | {seeds} | parameters | minutes a run | of a processor |',
        '|---|---|' + '---|' * (len(study.seeds) + 3),
    ]
    for arm in ARMS:
        own = {seed: record for (name, seed), record in finished.items() if name == arm}
        if not own:
            rows.append(f'| {arm} | not finished |' + ' |' * (len(study.seeds) + 3))
            continue
        values = {seed: final_value(record, stage.metric) for seed, record in own.items()}
        summary = summarise(list(values.values()))
        spread = '' if summary.deviation is None else f' ± {_number(summary.deviation, stage)}'
        cells = ' | '.join(_number(values[seed], stage) if seed in values else '' for seed in study.seeds)
        parameters = next(iter(own.values()))['parameters']
        minutes, cpu_minutes = (
            summarise([record[key] / 60 for record in own.values()]).mean for key in ('seconds', 'cpu_seconds')
        )
        rows.append(
            f'| {arm} | {_number(summary.mean, stage)}{spread} | {cells} | {parameters:,} '
            f'| {minutes:.1f} | {cpu_minutes:.1f} |'
        )
    return rows


def _differences(study: Study, stage: Stage, finished: Records) -> list[str]:
    values = {key: final_value(record, stage.metric) for key, record in finished.items()}
    rows = [
        'Paired differences, the same seed less the same seed:',
        '',
        '| difference | mean, 95% interval | of each seed | zero is |',
        '|---|---|---|---|',
    ]
    for arm in ARMS:
        seeds = [seed for seed in study.seeds if (arm, seed) in values and (BASELINE, seed) in values]
        if arm != BASELINE and seeds:
            pair = [[values[name, seed] for seed in seeds] for name in (arm, BASELINE)]
            rows.append(_difference_row(f'{arm} - {BASELINE}', paired_difference(*pair), stage))
    for factor in FACTORS:
        difference = factor_difference(values, factor)
        if difference is not None:
            rows.append(_difference_row(factor, difference, stage))
    return rows if len(rows) > 4 else ['There are no pairs yet.']


def _difference_row(name: str, difference: Difference, stage: Stage) -> str:
    each = ', '.join(_number(value, stage, sign=True) for value in difference.values)
    mean = _number(difference.mean, stage, sign=True)
    if difference.half_width is None:
        return f'| {name} | {mean} | {each} | one pair: unknown |'
    where = 'outside' if difference.is_shown else 'inside'
    return f'| {name} | {mean} ± {_number(difference.half_width, stage)} | {each} | {where} |'


def _number(value: float, stage: Stage, sign: bool = False) -> str:
    """Per cent of a classifier with one digit, AP between 0 and 1 with three."""
    digits = 1 if stage.metric.startswith('accuracy') else 3
    return f'{value:{"+" if sign else ""}.{digits}f}'


def _place(path: Path) -> str:
    """A path as seen from the working folder, where it is inside that."""
    path, here = path.resolve(), Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()


def _conditions(study: Study, records: Mapping[str, Records]) -> list[str]:
    lines = []
    every = [record for found in records.values() for record in found.values()]
    if not every:
        return lines
    for name, found in records.items():
        for record in list(found.values())[:1]:
            optimizer = ', '.join(f'{key} {value}' for key, value in record['optimizer'].items() if key != 'type')
            lines.append(
                f'- {name}: `{_place(study.stages[name].config)}`, {record.get("train_images", "?")} training and '
                f'{record.get("val_images", "?")} validation images, {record["epochs"]} epochs of batches of '
                f'{record["batch_size"]}, {record["optimizer"]["type"]} ({optimizer}).'
            )
    for folder, settings in study.data.items():
        lines.append(f'- `{folder}` is generated: {", ".join(f"{key} {value}" for key, value in settings.items())}.')
    machines = sorted({name for record in every for name in record['machines']})
    versions = sorted({', '.join(f'{key} {value}' for key, value in record['versions'].items()) for record in every})
    pieces = sum(record['pieces'] for record in every)
    lines += [
        f'- Machine: {"; ".join(machines)}. Minutes by the clock depend on what else ran there; those of a '
        'processor are of the training process alone.',
        f'- Versions: {"; ".join(versions)}.',
        f'- {pieces} pieces. To repeat it: `python tools/study.py {_place(study.config)}`.',
    ]
    return lines
