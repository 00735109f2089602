"""Report of a study, finished or not: tables, paired differences, curves and conditions, as Markdown and figures."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean

from experiments.robustness.names import CORRUPTIONS
from experiments.study.figures import METRICS, arm_difference, final_values, plot_curves, plot_summary
from experiments.study.intervals import Difference, paired_difference, summarise
from experiments.study.plan import ARMS, BASELINE, Run, Stage, Study
from experiments.study.results import Records

# Means over the other factor, of the arms with the factor less those without it.
FACTORS = {
    'DTN instead of LN, mean over both stems': (('DTN', 'DTN+DPN'), ('LN', 'LN+DPN')),
    'DPN instead of the plain stem, mean over both norms': (('LN+DPN', 'DTN+DPN'), ('LN', 'DTN')),
}
# Figures of `tokennorm analyze`, in the order of the DTN paper's.
INSIDE = {
    'magnitude': 'Magnitudes of tokens after the first norm of each block (Fig. 1), DTN compared with LN.',
    'attention-distance': 'Mean attention distance per head and block (Fig. 2). PVT attends to few, reduced keys.',
    'variation': 'Distance of the mean that a norm subtracts from the tokens (Fig. 3b).',
    'lambda': 'Lambda over the pretraining (Fig. 4): 1 is statistics within a token, 0 is across tokens.',
    'positions': 'Rows of P, which tokens a token is normalized with, before and after training (Figs. 7, 8).',
    'directions': 'Tokens by their first two principal components, before and after a norm (Fig. 9).',
}
SEVERITIES = (1, 3, 5)  # of corrupted images
_LIMITS = """Read the figures as small-scale evidence from these conditions, not as COCO results. A spread over {seeds}
seeds is itself uncertain. With so few pairs a 95% t interval is wide. An interval that includes 0 says that this study
shows no difference, not that there is none. The intervals are not corrected for the number of comparisons: of twenty
intervals without any effect, one excludes 0 by chance. The intervals are those of scipy's paired t test
(`scipy.stats.ttest_rel`). They cover the variation between seeds, not the choice of the data."""
_EQUAL = """The four main arms differ in `token_norm_cfg` and `stem_cfg` of the backbone and in nothing else; other
arms also in what their names say. LN has an eps of 1e-6, DTN has its own of 1e-5. For the same seed all arms have the
same order of images, the same random numbers for augmentation, and the same initial values of every parameter and
buffer that they share by name and shape. DPN's projection has another shape and its own initial values. The result of
a run is that of its last epoch, not of its best one."""


def write_report(study: Study, records: Mapping[str, Records], folder: Path) -> list[Path]:
    """Writes `PAGE.md` and `STAGE.png` of the finished runs, and `summary.png` if the study's config has findings.

    The figure of a stage is drawn if it has several seeds and its records have the epochs before the last. Those of
    `INSIDE` are not drawn.

    Returns:
        The files, the page first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    title = f'{study.title} (dry run: two iterations per run)' if study.dry else study.title
    lines, paths = [f'# {title}', ''], []
    if study.findings:
        paths.append(folder / 'summary.png')
        plot_summary(paths[-1], study, records)
        lines += [study.findings, '', '![Each arm minus LN: seeds, mean and 95% interval](summary.png)', '']
    lines += [*_status(study, records), '']
    left = []  # stages without a run of their own
    for name, stage in study.stages.items():
        finished = {key: record for key, record in records[name].items() if record['finished']}
        if not any(study.home(Run(name, *key)) == name for key in finished):
            left.append(name)
            continue
        metric = METRICS.get(stage.metric, stage.metric)
        lines += [f'## {stage.title or name}', '', f'Stage `{name}`, {metric}:', '']
        lines += [*_table(study, stage, finished), '']
        if len(stage.seeds or study.seeds) > 1:
            lines += [*_differences(study, stage, finished), '']
            lines += [f'![{metric} against epochs: mean and range of each arm]({name}.png)', '']
            if any(len(record['curve']) > 1 or record['epochs'] == 1 for record in finished.values()):
                paths.append(folder / f'{name}.png')
                plot_curves(paths[-1], records[name], stage.metric)
        lines += _corrupted(stage, finished)
    if left:
        lines += [f'Not run: {", ".join(f"`{name}`" for name in left)}.', '']
    lines += ['## Reading the figures', '', _LIMITS.format(seeds=len(study.seeds)), '']
    lines += ['## Conditions', '', _EQUAL, '', study.notes, '', *_conditions(study, records)]
    if any(record['finished'] for record in records.get(study.inside, {}).values()):
        lines += ['', f'## Inside {study.inside}, seed {study.seeds[0]}', '']
        for figure, caption in INSIDE.items():
            lines += [f'![{caption}](inside_{figure}.png)', '', caption, '']
    page = folder / f'{study.page}.md'
    page.write_text('\n'.join(lines).rstrip() + '\n', encoding='utf-8')
    return [page, *paths]


def factor_difference(values: Mapping[tuple[str, int], float], factor: str) -> Difference | None:
    """The effect of one of `FACTORS`, over the seeds that have all four arms; None for no such seed."""
    with_it, without_it = FACTORS[factor]
    seeds = sorted({seed for _, seed in values if all((arm, seed) in values for arm in ARMS)})
    means = [[sum(values[arm, seed] for arm in arms) / 2 for seed in seeds] for arms in (with_it, without_it)]
    return paired_difference(*means) if seeds else None


def _status(study: Study, records: Mapping[str, Records]) -> list[str]:
    total = len({study.folder(run) for run in study.runs()})  # several stages may show the same run
    every = {study.folder(Run(name, *key)): r for name, found in records.items() for key, r in found.items()}.values()
    done = sum(record['finished'] for record in every)
    seconds, processor = (sum(record[key] for record in every) for key in ('seconds', 'cpu_seconds'))
    seeds = ', '.join(map(str, study.seeds))
    return [
        f'{done} of {total} training runs are finished: {len(study.stages)} stages, seeds {seeds}. Together they took '
        f'{seconds / 60:.0f} minutes, and {processor / 60:.0f} minutes of processor time.'
    ]


def _table(study: Study, stage: Stage, finished: Records) -> list[str]:
    seeds = stage.seeds or study.seeds
    several = len(seeds) > 1
    with_lambda = any('lambda' in record for record in finished.values())
    columns = ['arm', *(['mean ± deviation'] if several else []), *(f'seed {seed}' for seed in seeds)]
    columns += [] if several else [f'minus {BASELINE}']
    columns += ['parameters']
    timed = several and len(set(stage.arms) & set(ARMS)) > 1  # other arms are trained at other times
    columns += ['processor minutes per run', f'processor time relative to {BASELINE}'] if timed else []
    columns += ['learned lambda at the end, least to largest of all heads'] if with_lambda else []
    columns += [f'paper: {stage.paper}'] if stage.paper else []
    rows = [f'| {" | ".join(columns)} |', '|---' * len(columns) + '|']
    values = final_values(finished, stage.metric)
    left = []
    for arm in stage.arms:
        own = {seed: record for (name, seed), record in finished.items() if name == arm}
        if not own:
            left.append(arm)
            continue
        summary = summarise([values[arm, seed] for seed in own])
        spread = '' if summary.deviation is None else f' ± {_number(summary.deviation, stage)}'
        cells = [arm, *([_number(summary.mean, stage) + spread] if several else [])]
        cells += [_number(values[arm, seed], stage) if seed in own else 'not run' for seed in seeds]
        if not several:
            difference = arm_difference(values, arm, BASELINE)
            cells.append('' if difference is None or arm == BASELINE else _number(difference.mean, stage, sign=True))
        cells.append(f'{next(iter(own.values()))["parameters"]:,}')
        minutes = summarise([record['cpu_seconds'] / 60 for record in own.values()]).mean
        if timed:
            cells += [f'{minutes:.1f}', _relative_time(finished, arm)] if arm in ARMS else ['', '']
        cells += [_lambdas(own.values())] if with_lambda else []
        cells += [str(stage.paper_values.get(arm, ''))] if stage.paper else []
        rows.append(f'| {" | ".join(cells)} |')
    return [*rows, '', f'Not run: {", ".join(left)}.'] if left else rows


def _lambdas(records: Iterable[Mapping]) -> str:
    """The least and the largest lambda of all heads and seeds."""
    ranges = [record['lambda'] for record in records if 'lambda' in record]
    return f'{min(r[0] for r in ranges):.4g} to {max(r[1] for r in ranges):.4g}' if ranges else ''


def _relative_time(finished: Records, arm: str) -> str:
    """Processor time of an arm's runs divided by that of LN's runs, over the seeds that have both."""
    seeds = [seed for name, seed in finished if name == arm and (BASELINE, seed) in finished]
    if not seeds:
        return 'not measured'
    one, other = (sum(finished[name, seed]['cpu_seconds'] for seed in seeds) for name in (arm, BASELINE))
    return f'{one / other:.2f}'


def _differences(study: Study, stage: Stage, finished: Records) -> list[str]:
    values = final_values(finished, stage.metric)
    rows = [
        'Paired differences, the same seed minus the same seed:',
        '',
        '| difference | mean, 95% interval | per seed | pairs | zero is |',
        '|---|---|---|---|---|',
    ]
    pairs = [(arm, BASELINE) for arm in stage.arms if arm != BASELINE]
    pairs += [pair for pair in study.contrasts if set(pair) <= set(stage.arms)]
    found = {f'{arm} - {other}': arm_difference(values, arm, other) for arm, other in pairs}
    found |= {factor: factor_difference(values, factor) for factor in FACTORS}
    rows += [_difference_row(name, difference, stage) for name, difference in found.items() if difference is not None]
    return rows if len(rows) > 4 else ['There are no pairs yet.']


def _difference_row(name: str, difference: Difference, stage: Stage) -> str:
    each = ', '.join(_number(value, stage, sign=True) for value in difference.values)
    mean = _number(difference.mean, stage, sign=True)
    if difference.half_width is None:
        return f'| {name} | {mean} | {each} | 1 | unknown from one pair |'
    where = 'outside' if difference.is_shown else 'inside'
    count = len(difference.values)
    return f'| {name} | {mean} ± {_number(difference.half_width, stage)} | {each} | {count} | {where} |'


def _corrupted(stage: Stage, finished: Records) -> list[str]:
    """Accuracy on corrupted images, over the seeds for which every evaluated arm has it on as many images."""
    found = {key: record['corrupted'] for key, record in finished.items() if 'corrupted' in record}
    images = max((entry['images'] for entry in found.values()), default=0)
    found = {key: entry for key, entry in found.items() if entry['images'] == images}
    arms = [arm for arm in stage.arms if arm in {name for name, _ in found}]
    seeds = [seed for seed in sorted({seed for _, seed in found}) if all((arm, seed) in found for arm in arms)]
    if BASELINE not in arms or not seeds:
        return []
    others = [arm for arm in arms if arm != BASELINE]
    listed = {name: ', '.join(map(str, values)) for name, values in (('seeds', seeds), ('severities', SEVERITIES))}
    lines = [
        f'Accuracy of the same runs, seeds {listed["seeds"]}, on {images} validation images with the corruptions of '
        f'ImageNet-C, mean of the severities {listed["severities"]}:',
        '',
        f'| images | {" | ".join(arms)} | {" | ".join(f"{arm} - {BASELINE}" for arm in others)} |',
        '|---' * (1 + len(arms) + len(others)) + '|',
    ]
    for row in ('clean', *CORRUPTIONS, 'mean of the corruptions'):
        values = {key: r[row] if row in r else mean(r[c] for c in CORRUPTIONS) for key, r in found.items()}
        own = {arm: [values[arm, seed] for seed in seeds] for arm in arms}
        cells = [_number(mean(own[arm]), stage) for arm in arms]
        for arm in others:
            difference = paired_difference(own[arm], own[BASELINE])
            spread = '' if difference.half_width is None else f' ± {_number(difference.half_width, stage)}'
            cells.append(_number(difference.mean, stage, sign=True) + spread)
        lines.append(f'| {row.replace("_", " ")} | {" | ".join(cells)} |')
    return [*lines, '']


def _number(value: float, stage: Stage, sign: bool = False) -> str:
    """Per cent for a classifier with two digits, AP between 0 and 1 with three."""
    digits = 2 if stage.metric.startswith('accuracy') else 3
    return f'{value:{"+" if sign else ""}.{digits}f}'


def _place(path: Path) -> str:
    """A path relative to the current directory, if it is inside that."""
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
        told = {key: f'{len(value)} names' if isinstance(value, list) else value for key, value in settings.items()}
        lines.append(f'- Data `{folder}`: {", ".join(f"{key} {value}" for key, value in told.items())}.')
    machines = sorted({name for record in every for name in record['machines']})
    versions = sorted({', '.join(f'{key} {value}' for key, value in record['versions'].items()) for record in every})
    lines += [
        f'- Machine: {"; ".join(machines)}. Minutes depend on what else ran there. Processor minutes are those of the '
        'training process only. They varied by up to a third between equal runs.',
        f'- Versions: {"; ".join(versions)}.',
        f'- To repeat the runs: `python projects/experiments/study/run.py {_place(study.config)}`.',
    ]
    return lines
