"""Tables and figures of the docs, from the kept results.

A page is Markdown by hand. Between `<!-- begin NAME ... -->` and `<!-- end -->` stands what `fill` writes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.robustness import CORRUPTIONS
from experiments.study.intervals import Difference, holm, paired_difference, two_way_interval
from experiments.study.plan import ARMS, BASELINE, Stage, Study
from experiments.study.results import Records, final_values, read_results, value_at
from experiments.study.scoring import resampled_values

METRICS = {'accuracy/top1': 'top-1 accuracy (%)', 'coco/bbox_mAP': 'box AP', 'coco/segm_mAP': 'mask AP'}
MISSING = 'not measured'
# Means over the other factor, of the arms with the factor less those without it.
FACTORS = {
    'DTN instead of LN, mean over both stems': (('DTN', 'DTN+DPN'), ('LN', 'LN+DPN')),
    'DPN instead of the plain stem, mean over both norms': (('LN+DPN', 'DTN+DPN'), ('LN', 'DTN')),
}
# Rows of the summary: the stages of each column.
COLUMNS = {'DTN': ('DTN', BASELINE), 'Dual PatchNorm': ('LN+DPN', BASELINE), 'local norm': ('local', BASELINE)}
SUMMARY = {
    'PVT-mini, 200 classes, 4 epochs': 'evidence/pvt_mini',
    'Swin-mini, 200 classes, 4 epochs': 'evidence/swin',
    'PVT-mini, 40 classes, 10 epochs': 'real/pvt_mini',
    'Swin-mini, 40 classes, 10 epochs': 'real/swin',
    'ViT, 16 x 16, 40 classes, 10 epochs': 'real/vit_p16',
    'ViT, 8 x 8, 40 classes, 10 epochs': 'real/vit_p8',
    'Blood cells, box AP, pretrained with the same norm': 'evidence/bccd_own',
    'Nuclei, mask AP, pretrained with the same norm': 'evidence/nuclei_own',
    'Raccoons, box AP, pretrained with the same norm': 'evidence/raccoon_own',
}


class Pages:
    """Kept results of all studies, and the parts of the docs that are made of them.

    Args:
        studies: Studies by name. The kept results of `NAME` are in `results/NAME`.
        results: Folder of the kept results.
    """

    def __init__(self, studies: Mapping[str, Study], results: Path) -> None:
        self.studies = studies
        self.records = {name: read_results(study, results / name) for name, study in studies.items()}
        self.intervals = 0  # number that were written

    def stage(self, name: str) -> tuple[Study, Stage, Records]:
        """The study, stage and records of `STUDY/STAGE`. `STUDY/STAGE+STAGE` joins the arms of stages of one task."""
        study, _, names = name.partition('/')
        stages = [self.studies[study].stages[one] for one in names.split('+')]
        records = {key: record for stage in stages for key, record in self.records[study][stage.name].items()}
        arms = tuple(arm for stage in stages for arm in stage.arms)
        return self.studies[study], replace(stages[0], arms=arms), records

    def difference(self, name: str, arm: str, other: str) -> Difference | None:
        """One arm of a stage minus another, paired by seed; None if no seed has both.

        The interval covers seeds and images where both arms were scored per image, and otherwise the seeds only.
        """
        _, stage, records = self.stage(name)
        return arm_difference(records, stage.metric, arm, other)

    def fill(self, text: str) -> str:
        """Returns a page with its generated parts replaced."""
        makers = dict(
            table=self.table,
            corrupted=self.corrupted,
            summary=self.summary,
            primary=self.primary,
            advice=self.advice,
            count=self.count,
        )

        def generate(match: re.Match) -> str:
            kind, _, argument = match[1].partition(' ')
            lines = makers[kind](argument) if argument else makers[kind]()
            return '\n'.join([f'<!-- begin {match[1]} -->', '', *lines, '', '<!-- end -->'])

        return re.sub(r'<!-- begin (.*?) -->.*?<!-- end -->', generate, text, flags=re.DOTALL)

    def table(self, name: str) -> list[str]:
        """Each arm and seed of a stage, and the paired differences."""
        study, stage, records = self.stage(name)
        if not records:
            return [f'{stage.title or stage.name}: {MISSING}.']
        seeds = sorted({seed for _, seed in records})
        timed = len({arm for arm, _ in records} & set(ARMS)) > 1
        with_lambda = any('lambda' in record for record in records.values())
        columns = ['arm', 'mean ± deviation', *(f'seed {seed}' for seed in seeds), 'parameters']
        columns += ['processor minutes', f'time relative to {BASELINE}'] if timed else []
        columns += ['lambda of all heads at the end'] if with_lambda else []
        rows = [f'{METRICS[stage.metric]}, {_what(records.values())}:', '', *_head(columns)]
        values = final_values(records, stage.metric)
        for arm in dict.fromkeys(arm for arm, _ in records):
            own = {seed: values[arm, seed] for seed in seeds if (arm, seed) in values}
            cells = [arm, f'{mean(own.values()):.2f}' + (f' ± {stdev(own.values()):.2f}' if len(own) > 1 else '')]
            cells += [f'{own[seed]:.2f}' if seed in own else 'not run' for seed in seeds]
            cells.append(f'{records[arm, min(own)]["parameters"]:,}')
            if timed:
                minutes = mean(records[arm, seed]['cpu_seconds'] / 60 for seed in own)
                cells += [f'{minutes:.1f}', relative_time(records, arm)] if arm in ARMS else ['', '']
            cells += [_lambdas(records[arm, seed] for seed in own)] if with_lambda else []
            rows.append(_row(cells))
        if left := [arm for arm in stage.arms if arm not in {arm for arm, _ in records}]:
            rows += ['', f'Not run: {", ".join(left)}.']
        return [*rows, '', *self._differences(study, stage, records)]

    def _differences(self, study: Study, stage: Stage, records: Records) -> list[str]:
        pairs = [(arm, BASELINE) for arm in stage.arms if arm != BASELINE]
        pairs += [pair for pair in study.contrasts if set(pair) <= set(stage.arms)]
        found = {f'{arm} - {other}': arm_difference(records, stage.metric, arm, other) for arm, other in pairs}
        values = final_values(records, stage.metric)
        found |= {factor: factor_difference(values, factor) for factor in FACTORS}
        found = {name: difference for name, difference in found.items() if difference is not None}
        if not found:
            return ['There are no pairs yet.']
        scored = any(difference.images_error is not None for difference in found.values())
        rows = _head(
            ['difference', 'mean', '95% interval', 'of', 'per seed', *(['standard error of the images'] * scored)]
        )
        for name, difference in found.items():
            each = ', '.join(f'{value:+.2f}' for value in difference.values)
            cells = [name, f'{difference.mean:+.2f}', self._interval(difference), _covers(difference), each]
            if scored:
                cells.append(MISSING if difference.images_error is None else f'{difference.images_error:.2f}')
            rows.append(_row(cells))
        return rows if scored else [*rows, '', _sampling_error(stage, records)]

    def _interval(self, difference: Difference, digits: int = 2) -> str:
        if difference.interval is None:
            return 'none'
        self.intervals += 1
        low, high = difference.interval
        return f'{low:+.{digits}f} to {high:+.{digits}f}'

    def summary(self) -> list[str]:
        """One row per backbone and task, with the difference that each technique makes."""
        rows = _head(['backbone and task', *COLUMNS, 'seeds', 'training time of DTN relative to LN'])
        for title, name in SUMMARY.items():
            cells = [title]
            found = [self.difference(name, arm, other) for arm, other in COLUMNS.values()]
            seeds = max((len(difference.values) for difference in found if difference), default=0)
            for difference in found:
                if difference is None:
                    cells.append(MISSING)
                    continue
                interval = f' ({self._interval(difference, 1)})' if difference.interval else ''
                own = len(difference.values)
                fewer = '' if own == seeds else f', {own} seed{"s" if own > 1 else ""}'
                cells.append(f'{difference.mean:+.1f}{interval}{fewer}')
            cells += [str(seeds or MISSING), relative_time(self.stage(name)[2], 'DTN')]
            rows.append(_row(cells))
        return rows

    def planned(self, study: str) -> dict[tuple[str, str, str], tuple[Difference | None, float | None]]:
        """The difference of each primary comparison of a study, and its p value with Holm's correction over all.

        There is no p value with fewer than two seeds. What is missing counts as a comparison.
        """
        comparisons = self.studies[study].primary
        found = [self.difference(f'{study}/{stage}', arm, other) for stage, arm, other in comparisons]
        tested = [d is not None and d.p is not None and len(d.values) > 1 for d in found]
        corrected = holm([d.p if is_tested else 1.0 for d, is_tested in zip(found, tested, strict=True)])
        ps = [p if is_tested else None for p, is_tested in zip(corrected, tested, strict=True)]
        return dict(zip(comparisons, zip(found, ps, strict=True), strict=True))

    def primary(self, study: str) -> list[str]:
        """The comparisons that a study planned as primary."""
        rows = _head(['planned comparison', 'mean', '95% interval', 'of', 'per seed', "p, Holm's correction"])
        for (stage, arm, other), (difference, p) in self.planned(study).items():
            title = f'{arm} - {other}, {self.studies[study].stages[stage].title}'
            if difference is None:
                rows.append(_row([title, MISSING, '', '', '', '']))
                continue
            cells = [title, f'{difference.mean:+.2f}', self._interval(difference), _covers(difference)]
            cells += [', '.join(f'{value:+.2f}' for value in difference.values)]
            test = 'no test with one seed' if p is None else '< 0.001' if p < 0.001 else f'{p:.3f}'
            rows.append(_row([*cells, test]))
        return rows

    def advice(self, study: str) -> list[str]:
        """What follows from the primary comparisons, by the rule that the plan fixed before the first run."""
        holds = {
            key: None if p is None else p < 0.05 and difference.mean > 0
            for key, (difference, p) in self.planned(study).items()
        }
        own = [holds[stage, 'DTN', BASELINE] for stage in ('bccd_own', 'nuclei_own')]
        if any(own):
            text = 'Pretrain with DTN and keep it in the detector: accuracy and AP were higher than with LayerNorm.'
        elif None in own:
            text = 'Not decided: the rule needs at least two seeds of both detectors.'
        else:
            text = 'Use LayerNorm: pretraining and detecting with DTN was not shown to be better.'
        local = holds['pvt_mini', 'local', BASELINE]
        verdict = (
            'Not decided.' if local is None else 'More accurate than LayerNorm.' if local else 'No gain was shown.'
        )
        return [f'- **DTN in detectors.** {text}', f'- **Local norm, in classification.** {verdict}']

    def corrupted(self, name: str) -> list[str]:
        """Accuracy on corrupted images, over the seeds for which every evaluated arm has it."""
        _, stage, records = self.stage(name)
        found = {key: record['corrupted'] for key, record in records.items() if 'corrupted' in record}
        arms = [arm for arm in stage.arms if arm in {name for name, _ in found}]
        seeds = [seed for seed in sorted({seed for _, seed in found}) if all((arm, seed) in found for arm in arms)]
        others = [arm for arm in arms if arm != BASELINE]
        images = next(iter(found.values()))['images']
        rows = [f'{images} images, seeds {", ".join(map(str, seeds))}:', '']
        rows += _head(['images', *arms, *(f'{arm} - {BASELINE}, 95% interval over seeds' for arm in others)])
        for row in ('clean', *CORRUPTIONS, 'mean of the corruptions', 'corrupted / clean'):
            own = {arm: [_accuracy(found[arm, seed], row) for seed in seeds] for arm in arms}
            cells = [f'{mean(own[arm]):.2f}' for arm in arms]
            for arm in others:
                difference = paired_difference(own[arm], own[BASELINE])
                interval = f' ({self._interval(difference)})' if difference.interval else ''
                cells.append(f'{difference.mean:+.2f}{interval}')
            rows.append(_row([row.replace('_', ' '), *cells]))
        return rows

    def count(self) -> list[str]:
        """Number of runs, time and intervals: of all pages that were filled before this one."""
        every = {  # plans share runs; the oldest have no fingerprint, and it lacks the arm of the initial weights
            (record.get('fingerprint', run), run.arm): record
            for name, study in self.studies.items()
            for run in study.runs()
            if (record := self.records[name][run.stage].get((run.arm, run.seed)))
        }.values()
        hours = sum(record['cpu_seconds'] for record in every) / 3600
        return [
            f'All pages together rest on {len(every)} training runs ({hours:.0f} hours of processor time) and print '
            f'{self.intervals} intervals of 95%. On average, one of twenty such intervals without any effect '
            'excludes zero by chance.'
        ]


def arm_difference(records: Records, metric: str, arm: str, other: str) -> Difference | None:
    """One arm minus another, paired by seed, over the seeds that have both; None for no such seed."""
    values = final_values(records, metric)
    seeds = [seed for name, seed in values if name == arm and (other, seed) in values]
    if not seeds:
        return None
    difference = paired_difference(*([values[name, seed] for seed in seeds] for name in (arm, other)))
    if not all('scores' in records[name, seed] for seed in seeds for name in (arm, other)):
        return difference
    drawn = [np.stack([resampled_values(records[name, seed]['scores']) for seed in seeds]) for name in (arm, other)]
    low, high, p = two_way_interval(*drawn)
    error = float((drawn[0] - drawn[1]).mean(0).std())
    return Difference(difference.values, (low, high), p, error)


def factor_difference(values: Mapping[tuple[str, int], float], factor: str) -> Difference | None:
    """The effect of one of `FACTORS`, over the seeds that have all four arms; None for no such seed."""
    with_it, without_it = FACTORS[factor]
    seeds = sorted({seed for _, seed in values if all((arm, seed) in values for arm in ARMS)})
    means = [[sum(values[arm, seed] for arm in arms) / 2 for seed in seeds] for arms in (with_it, without_it)]
    return paired_difference(*means) if seeds else None


def relative_time(records: Records, arm: str) -> str:
    """Processor time of an arm's runs divided by that of LN's runs, over the seeds that have both."""
    seeds = [seed for name, seed in records if name == arm and (BASELINE, seed) in records]
    if not seeds:
        return MISSING
    one, other = (sum(records[name, seed]['cpu_seconds'] for seed in seeds) for name in (arm, BASELINE))
    return f'{one / other:.2f}'


def plot_summary(pages: Pages, path: Path) -> None:
    """Draws every difference of the summary on one scale, in points: seeds, mean and interval."""
    rows = [
        (f'{title}: {column}', pages.difference(name, *arms))
        for title, name in SUMMARY.items()
        for column, arms in COLUMNS.items()
    ]
    rows = [(title, difference) for title, difference in rows if difference is not None]
    figure = Figure(figsize=(9, 1 + 0.36 * len(rows)), layout='constrained')
    axes = figure.subplots()
    for row, (_, difference) in enumerate(rows):
        if difference.interval:
            axes.plot(difference.interval, [row, row], color='C0', lw=2, label='95% interval')
        axes.plot(difference.values, [row] * len(difference.values), '.', color='grey', label='seed')
        axes.plot(difference.mean, row, 's', color='C0', label='mean')
    axes.axvline(0, color='black', lw=0.8)
    axes.set_yticks(range(len(rows)), [title for title, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel('difference from LayerNorm with the plain stem: accuracy or AP')
    axes.grid(alpha=0.3, axis='x')
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles.values(), handles.keys(), loc='best')
    figure.savefig(path, dpi=110)


def plot_curves(pages: Pages, name: str, path: Path) -> None:
    """Draws the metric of each arm of a stage, mean over the seeds, against epochs and against processor minutes."""
    _, stage, records = pages.stage(name)
    figure = Figure(figsize=(10, 4), layout='constrained')
    for axes, what in zip(figure.subplots(1, 2), ('epoch', 'processor minutes'), strict=True):
        for arm in dict.fromkeys(arm for arm, _ in records):
            if what != 'epoch' and arm not in ARMS:  # as in the tables: other arms have no comparable times
                continue
            own = [record for (other, _), record in records.items() if other == arm]
            epochs = sorted(set.intersection(*(set(map(int, record['curve'])) for record in own)))
            minutes = mean(record['cpu_seconds'] / 60 / record['epochs'] for record in own)
            values = [mean(value_at(record, epoch, stage.metric) for record in own) for epoch in epochs]
            steps = epochs if what == 'epoch' else [epoch * minutes for epoch in epochs]
            axes.plot(steps, values, marker='.', label=f'{arm} ({len(own)} seeds)')
        axes.set(xlabel=what, ylabel=METRICS[stage.metric])
        axes.grid(alpha=0.3)
        if records:
            axes.legend()
    figure.savefig(path, dpi=110)


def _head(columns: list[str]) -> list[str]:
    return [_row(columns), '|---' * len(columns) + '|']


def _row(cells: Iterable[str]) -> str:
    return f'| {" | ".join(cells)} |'


def _covers(difference: Difference) -> str:
    seeds = len(difference.values)
    what = f'{seeds} seeds' if seeds > 1 else '1 seed'
    return what if difference.images_error is None else f'{what} and images' if seeds > 1 else 'images, 1 seed'


def _what(records: Iterable[Mapping[str, Any]]) -> str:
    record = next(iter(records))
    optimizer = record['optimizer']
    text = f'{record["epochs"]} epochs of batches of {record["batch_size"]}, learning rate {optimizer["lr"]:.2g}'
    images = record.get('val_images')
    if images:
        text = f'{record["train_images"]:,} training and {images:,} test images, {text}'
    return text


def _sampling_error(stage: Stage, records: Records) -> str:
    """Sentence on the error that is due to the test images, which intervals of seeds do not cover."""
    if stage.metric.startswith('coco/'):
        return 'The intervals do not cover the choice of the test images. Its error was not measured.'
    record = next(iter(records.values()))
    part = mean(final_values(records, stage.metric).values()) / 100
    error = 100 * (part * (1 - part) / record['val_images']) ** 0.5
    return (
        f'The intervals do not cover the choice of the {record["val_images"]:,} test images, from which each accuracy '
        f'has a standard error of about {error:.1f} points.'
    )


def _lambdas(records: Iterable[Mapping]) -> str:
    """The least and the largest lambda of all heads and seeds."""
    ranges = [record['lambda'] for record in records if 'lambda' in record]
    return f'{min(r[0] for r in ranges):.4g} to {max(r[1] for r in ranges):.4g}' if ranges else ''


def _accuracy(entry: Mapping[str, float], row: str) -> float:
    corrupted = mean(entry[name] for name in CORRUPTIONS)
    return {'mean of the corruptions': corrupted, 'corrupted / clean': corrupted / entry['clean']}.get(
        row, entry.get(row, 0.0)
    )
