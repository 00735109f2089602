"""Tables of the docs, from the kept results.

A page is Markdown by hand. Between `<!-- begin NAME ... -->` and `<!-- end -->` stands what `fill` writes.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from experiments.robustness import CORRUPTIONS
from experiments.study.intervals import Difference, ImageError, difference_of, holm, image_error, mean_image_error
from experiments.study.plan import ARMS, BASELINE, Stage, Study
from experiments.study.results import (
    Records,
    final_values,
    number_of_images,
    read_repeats,
    read_results,
)
from experiments.study.scoring import image_scores
from experiments.study.travel import table as travel_table

METRICS = {'accuracy/top1': 'top-1 accuracy (%)', 'coco/bbox_mAP': 'box AP', 'coco/segm_mAP': 'mask AP'}
MISSING = 'not measured'
# Differences that tables have in addition to those of the plans, where a stage has both arms.
CONTRASTS = (
    ('DPN+statistics', 'plain+statistics'),
    ('LN+DPN RMSNorm eps 1', 'LN+DPN eps 1'),
    ('local 1x', 'DTN'),
    ('local', 'local 1x'),
    ('DTN 20x, pool 1', 'DTN 20x'),
    ('DTN 20x, pools 8 4 2', 'DTN 20x'),
    ('DTN 20x, pool 1, heads 4 4 4 8', 'DTN 20x, pool 1'),
    ('DTN 20x, pool 1, heads 4 4 4 8', 'LN, heads 4 4 4 8'),
)
# Columns of the summary: differences of two arms. Those that no row has are left out. Dual PatchNorm has two rows only.
COLUMNS = {
    'DTN': ('DTN', BASELINE),
    'DTN, 20 x rate': ('DTN 20x', BASELINE),
    'local norm': ('local', BASELINE),
}
# Rows of the summary. Stages of `LATER` with two runs or more follow them under their own titles.
SUMMARY = {
    'PVT-mini, 200 classes, 4 epochs': 'evidence/pvt_mini',
    'Swin-mini, 200 classes, 4 epochs (rate not tuned)': 'evidence/swin',
    'PVT-mini, 40 classes, 10 epochs': 'real/pvt_mini',
    'Swin-mini, 40 classes, 10 epochs (rate not tuned)': 'real/swin',
    'ViT, 16 x 16, 40 classes, 10 epochs': 'real/vit_p16',
    'Blood cells, box AP': 'evidence/bccd_own+bccd_fast',
    'Nuclei, mask AP': 'evidence/nuclei_own+nuclei_fast',
    'Raccoons, box AP': 'evidence/raccoon_own',
}
LATER = ('start', 'longer')
USUAL = 3  # runs of an arm, which its cell does not name
# The study that lends its error by the images to accuracies without scores: they are all about 25%, and so are its own.
LENDER = 'evidence'


class Pages:
    """Kept results of all studies, and the parts of the docs that are made of them.

    Args:
        studies: Studies by name. The kept results of `NAME` are in `results/NAME`.
        results: Folder of the kept results.
    """

    def __init__(self, studies: Mapping[str, Study], results: Path) -> None:
        self.studies = studies
        self.records = {name: read_results(study, results / name) for name, study in studies.items()}
        self.repeats = {name: read_repeats(study, results / name) for name, study in studies.items()}
        self.intervals = 0  # number that were written

    def stage(self, name: str) -> tuple[Study, Stage, Records]:
        """The study, stage and records of `STUDY/STAGE`. `STUDY/STAGE+STAGE` joins the arms of stages of one task."""
        study, _, names = name.partition('/')
        stages = [self.studies[study].stages[one] for one in names.split('+')]
        records = {key: record for stage in stages for key, record in self.records[study][stage.name].items()}
        arms = tuple(dict.fromkeys(arm for stage in stages for arm in stage.arms))
        return self.studies[study], replace(stages[0], arms=arms), records

    def difference(self, name: str, arm: str, other: str) -> Difference | None:
        """One arm of a stage minus another, over all runs of each; None if one of them has none."""
        study, stage, records = self.stage(name)
        own, baseline = (values_of(records, stage.metric, one) for one in (arm, other))
        if not own or not baseline:
            return None
        pooled = [values_of(records, stage.metric, one) for one in stage.arms] if study.pools_runs else ()
        return difference_of(own, baseline, self.image_error(stage, records, arm, other), pooled)

    def image_error(self, stage: Stage, records: Records, arm: str, other: str) -> ImageError | None:
        """The error that is due to the images: measured, or for accuracies borrowed from the stages with scores."""
        if measured := measured_image_error(records, arm, other):
            return measured
        images = number_of_images(records)
        if not stage.metric.startswith('accuracy') or not images or self.lent is None:
            return None
        return self.lent.borrowed(images)

    @functools.cached_property
    def lent(self) -> ImageError | None:
        """The error per image of an accuracy, averaged over the arms of `LENDER` that were scored and the baseline."""
        found = [
            measured_image_error(records, arm, BASELINE)
            for stage, records in self.records.get(LENDER, {}).items()
            if self.studies[LENDER].stages[stage].metric.startswith('accuracy')
            and not self.studies[LENDER].is_extension(self.studies[LENDER].stages[stage])
            for arm in self.studies[LENDER].stages[stage].arms
            if arm != BASELINE
        ]
        errors = [error for error in found if error is not None]
        return mean_image_error(errors) if errors else None

    def fill(self, text: str) -> str:
        """Returns a page with its generated parts replaced."""
        makers = dict(
            table=self.table,
            tables=self.tables,
            arms=self.arms,
            repeated=self.repeated,
            corrupted=self.corrupted,
            summary=self.summary,
            verdict=self.verdict,
            primary=self.primary,
            advice=self.advice,
            travel=self.travel,
            count=self.count,
            missing=self.missing,
        )

        def generate(match: re.Match) -> str:
            kind, *arguments = match[1].split()
            return '\n'.join([f'<!-- begin {match[1]} -->', '', *makers[kind](*arguments), '', '<!-- end -->'])

        return re.sub(r'<!-- begin (.*?) -->.*?<!-- end -->', generate, text, flags=re.DOTALL)

    def table(self, name: str) -> list[str]:
        """Each run of a stage, and the differences of its arms."""
        _, stage, records = self.stage(name)
        if not records:
            return [f'{stage.title or stage.name}: {MISSING}.']
        seeds = sorted({seed for _, seed in records})
        timed = any(relative_time(records, arm) != MISSING for arm in set(ARMS) - {BASELINE})
        with_lambda = any('lambda' in record for record in records.values())
        columns = ['arm', *(['mean ± deviation'] * (len(seeds) > 1)), *(f'seed {seed}' for seed in seeds), 'parameters']
        columns += ['processor minutes', f'time relative to {BASELINE}'] if timed else []
        columns += ['lambda of all heads at the end'] if with_lambda else []
        rows = [f'{METRICS[stage.metric]}, {_what(records)}:', '', *_head(columns)]
        values = final_values(records, stage.metric)
        for arm in dict.fromkeys(arm for arm, _ in records):
            own = {seed: values[arm, seed] for seed in seeds if (arm, seed) in values}
            cells = [arm, *([_mean(own.values())] * (len(seeds) > 1))]
            cells += [f'{own[seed]:.2f}' if seed in own else 'not run' for seed in seeds]
            cells.append(f'{records[arm, min(own)]["parameters"]:,}')
            if timed:
                minutes = mean(records[arm, seed]['cpu_seconds'] / 60 for seed in own)
                cells += [f'{minutes:.1f}', relative_time(records, arm)] if arm in ARMS else ['', '']
            cells += [_lambdas(records[arm, seed] for seed in own)] if with_lambda else []
            rows.append(_row(cells))
        if left := [arm for arm in stage.arms if arm not in {arm for arm, _ in records}]:
            rows += ['', f'Not run: {", ".join(left)}.']
        return [*rows, *self._differences(name)]

    def tables(self, study: str) -> list[str]:
        """The tables of all stages of a study that have runs, each under its title."""
        found = [
            (stage, self.table(f'{study}/{name}'))
            for name, stage in self.studies[study].stages.items()
            if self.records[study][name]
        ]
        return [line for stage, rows in found for line in ('', f'### {stage.title or stage.name}', '', *rows)][1:] or [
            f'{study}: {MISSING}.'
        ]

    def _differences(self, name: str) -> list[str]:
        study, stage, _ = self.stage(name)
        pairs = [(arm, BASELINE) for arm in stage.arms if arm != BASELINE]
        pairs += [pair for pair in (*study.contrasts, *CONTRASTS) if set(pair) <= set(stage.arms)]
        found = {pair: self.difference(name, *pair) for pair in dict.fromkeys(pairs)}
        rows = {f'{arm} - {other}': difference for (arm, other), difference in found.items() if difference is not None}
        if all(max(difference.runs) == 1 for difference in rows.values()):
            return []  # with one run of each arm there is nothing but the difference
        lines = ['', *_head(['difference', 'mean', '95% interval', 'runs', 'standard error', 'of it, by the images'])]
        for title, difference in rows.items():
            error = MISSING if difference.error is None else f'{difference.error:.2f}'
            cells = [title, f'{difference.mean:+.2f}', self._interval(difference), _runs(difference), error]
            lines.append(_row([*cells, _images(difference)]))
        return lines

    def _interval(self, difference: Difference, digits: int = 2, level: float = 0.95) -> str:
        ends = difference.interval(level)
        if ends is None:
            return 'none'
        self.intervals += 1
        return f'{ends[0]:+.{digits}f} to {ends[1]:+.{digits}f}'

    def arms(self, *names: str) -> list[str]:
        """The mean of each arm in several stages, a column each."""
        stages = [self.stage(name) for name in names]
        values = [final_values(records, stage.metric) for _, stage, records in stages]
        columns = [f'{stage.title}: {METRICS[stage.metric]}, {_length(stage, records)}' for _, stage, records in stages]
        rows = _head(['arm', *columns])
        for arm in dict.fromkeys(arm for _, stage, _ in stages for arm in stage.arms):
            own = [[value for (name, _), value in found.items() if name == arm] for found in values]
            if any(own):
                rows.append(_row([arm, *(_mean(found) if found else '' for found in own)]))
        return rows

    def repeated(self, name: str) -> list[str]:
        """The runs of a stage that were trained twice, both times: differences of each round, and of all runs."""
        study, _, stage_name = name.partition('/')
        _, stage, records = self.stage(name)
        again = self.repeats[study].get(stage_name, {})
        arms = list(dict.fromkeys(arm for arm, _ in again))
        others = [arm for arm in arms if arm != BASELINE]
        rows = _head(['seed', 'trained', *arms, *(f'{arm} - {BASELINE}' for arm in others)])
        every: dict[str, list[float]] = {arm: [] for arm in arms}
        for trained, own in (('first', records), ('again', again)):
            found = final_values(own, stage.metric)
            for seed in sorted({seed for arm, seed in found if arm in arms}):
                for arm in arms:
                    every[arm].append(found[arm, seed])
                cells = [f'{found[arm, seed]:.2f}' for arm in arms]
                cells += [f'{found[arm, seed] - found[BASELINE, seed]:+.2f}' for arm in others]
                rows.append(_row([str(seed), trained, *cells]))
        cells = [_mean(every[arm]) for arm in arms]
        cells += [_mean(np.subtract(every[arm], every[BASELINE]), '+') for arm in others]
        rows.append(_row(['mean ± deviation', '', *cells]))
        cells = [''] * len(arms)
        for arm in others:
            error = self.image_error(stage, records, arm, BASELINE)
            cells.append(self._interval(difference_of(every[arm], every[BASELINE], error)))
        rows.append(_row(['95% interval', '', *cells]))
        return rows

    def summary_rows(self) -> dict[str, str]:
        """Title and stage of each row of the summary."""
        later = {
            stage.title or key: f'{name}/{key}'
            for name in LATER
            if name in self.studies
            for key, stage in self.studies[name].stages.items()
            if not self.studies[name].is_extension(stage)
            and any(_is_measured(self.difference(f'{name}/{key}', *pair)) for pair in COLUMNS.values())
        }
        return SUMMARY | later

    def summary(self) -> list[str]:
        """One row per backbone and task, with the difference that each technique makes."""
        found = {
            (title, column): self.difference(name, *pair)
            for title, name in self.summary_rows().items()
            for column, pair in COLUMNS.items()
        }
        columns = [one for one in COLUMNS if any(d for (_, column), d in found.items() if column == one)]
        rows = _head(['backbone and task', *columns, 'training time, DTN relative to LN'])
        for title, name in self.summary_rows().items():
            cells = [title]
            for column in columns:
                difference = found[title, column]
                if difference is None:
                    cells.append(MISSING)
                    continue
                interval = f' ({self._interval(difference, 1)})' if difference.error else ''
                fewer = '' if min(difference.runs) == USUAL else f', {_runs(difference)} runs'
                cells.append(f'{difference.mean:+.1f}{interval}{fewer}')
            rows.append(_row([*cells, relative_time(self.stage(name)[2], 'DTN')]))
        return rows

    def verdict(self, name: str = 'evidence/pvt_mini+pvt_mini_fair') -> list[str]:
        """The differences of the summary's first row by the rate that their condition names."""

        def said(arm: str, other: str) -> str:
            difference = self.difference(name, arm, other)
            return MISSING if difference is None else f'{difference.mean:+.1f} ({self._interval(difference, 1)})'

        lines = []
        arms = {'at the common rate': ('DTN', 'local 1x'), 'at 20 times it': ('DTN 20x', 'local')}
        for condition, (dtn, local) in arms.items():
            against = f'DTN minus local norm {said(dtn, local)}'
            lines.append(f'- {condition}: DTN {said(dtn, BASELINE)}, local norm {said(local, BASELINE)}, {against}')
        return lines

    def planned(self, study: str) -> dict[tuple[str, str, str], tuple[Difference | None, float | None]]:
        """The difference of each primary comparison of a study, and its p value with Holm's correction over all.

        There is no p value without an interval. What is missing counts as a comparison.
        """
        comparisons = self.studies[study].primary
        found = [self.difference(f'{study}/{stage}', arm, other) for stage, arm, other in comparisons]
        corrected = holm([d.p if d is not None and d.p is not None else 1.0 for d in found])
        ps = [None if d is None or d.p is None else p for d, p in zip(found, corrected, strict=True)]
        return dict(zip(comparisons, zip(found, ps, strict=True), strict=True))

    def primary(self, study: str, percent: str = '95') -> list[str]:
        """The comparisons that a study planned as primary, with intervals of another level for equivalence."""
        rows = _head(['planned comparison', 'mean', f'{percent}% interval', 'runs', "p, Holm's correction"])
        for (stage, arm, other), (difference, p) in self.planned(study).items():
            title = f'{arm} - {other}, {self.studies[study].stages[stage].title}'
            if difference is None:
                rows.append(_row([title, MISSING, '', '', '']))
                continue
            interval = self._interval(difference, level=float(percent) / 100)
            test = 'no test' if p is None else '< 0.001' if p < 0.001 else f'{p:.3f}'
            rows.append(_row([title, f'{difference.mean:+.2f}', interval, _runs(difference), test]))
        return rows

    def advice(self, study: str) -> list[str]:
        """What follows from the primary comparisons, by the rule that the plan fixed before the first run."""
        planned = self.planned(study)
        holds = {key: None if p is None else p < 0.05 and d.mean > 0 for key, (d, p) in planned.items()}
        detectors = {'blood cells': 'bccd_own', 'nuclei': 'nuclei_own'}
        own = {name: holds[stage, 'DTN', BASELINE] for name, stage in detectors.items()}
        if any(own.values()):
            shown = [name for name, is_shown in own.items() if is_shown]
            rest = [name for name in own if name not in shown]
            text = f'Pretrain with DTN and keep it in the detector: AP was higher than with LayerNorm on {shown[0]}'
            text += f'; on {rest[0]} no gain was shown.' if rest else f' and {shown[1]}.'
        elif None in own.values():
            text = 'Not decided: the rule needs at least two runs of each arm.'
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
        rows = [f'{images} images, seeds {", ".join(map(str, seeds))}, mean ± deviation of the runs:', '']
        rows += _head(['images', *arms, *(f'{arm} - {BASELINE}' for arm in others)])
        for row in ('clean', *CORRUPTIONS, 'mean of the corruptions', 'corrupted / clean'):
            own = {arm: [_accuracy(found[arm, seed], row) for seed in seeds] for arm in arms}
            cells = [_mean(own[arm]) for arm in arms]
            cells += [f'{mean(own[arm]) - mean(own[BASELINE]):+.2f}' for arm in others]
            rows.append(_row([row.replace('_', ' '), *cells]))
        return rows

    def travel(self) -> list[str]:
        """The sum of the learning rates of the study's schedules and of long ones."""
        rows = _head(['training run', 'steps', 'sum of the learning rates', '20 times that'])
        for title, steps, total in travel_table(*(self.studies[name] for name in ('real', 'evidence', 'longer'))):
            rows.append(_row([title, f'{steps:,}', f'{total:.2f}', f'{20 * total:,.0f}']))
        return rows

    def missing(self) -> list[str]:
        """The stages of all plans that have arms without any result, with these arms."""
        rows = _head(['study', 'planned', 'arms without a result'])
        for name, study in self.studies.items():
            for key, stage in study.stages.items():
                found = {arm for arm, _ in self.records[name][key]}
                if left := [arm for arm in stage.arms if arm not in found]:
                    arms = 'all' if len(left) == len(stage.arms) else '; '.join(left)
                    rows.append(_row([f'`{name}.py`', f'{stage.title or key} (`{key}`)', arms]))
        return rows

    def count(self) -> list[str]:
        """Number of runs, time and intervals: of all pages that were filled before this one."""
        every = {  # plans share runs; the oldest have no fingerprint, and it lacks the arm of the initial weights
            (record.get('fingerprint', run), run.arm): record
            for name, study in self.studies.items()
            for run in study.runs()
            if (record := self.records[name][run.stage].get((run.arm, run.seed)))
        }
        again = [record for found in self.repeats.values() for stage in found.values() for record in stage.values()]
        hours = sum(record['cpu_seconds'] for record in (*every.values(), *again)) / 3600
        return [
            f'The results hold {len(every) + len(again)} training runs ({hours:.0f} hours of processor time). '
            f'All pages together print {self.intervals} intervals. One in twenty misses the true difference.'
        ]


def measured_image_error(records: Records, arm: str, other: str) -> ImageError | None:
    """The error of a difference that is due to the images; None unless two runs or more of each arm were scored."""
    scores = [[record.get('scores') for (name, _), record in records.items() if name == one] for one in (arm, other)]
    if any(len(own) < 2 or None in own for own in scores):
        return None
    values, baseline = ([image_scores(one) for one in own] for own in scores)
    own, others = (np.stack([columns for columns, _ in one]) for one in (values, baseline))
    return image_error(own, others, values[0][1], scores[0][0]['images'])


def relative_time(records: Records, arm: str) -> str:
    """Processor time of an arm's runs divided by that of LN's runs, over the seeds that have both on one machine."""
    machines = {key: record['machines'] for key, record in records.items()}
    seeds = [seed for name, seed in records if name == arm and machines[arm, seed] == machines.get((BASELINE, seed))]
    if not seeds:
        return MISSING
    one, other = (sum(records[name, seed]['cpu_seconds'] for seed in seeds) for name in (arm, BASELINE))
    return f'{one / other:.2f}'


def _head(columns: list[str]) -> list[str]:
    return [_row(columns), '|---' * len(columns) + '|']


def _row(cells: Iterable[str]) -> str:
    return f'| {" | ".join(cells)} |'


def values_of(records: Records, metric: str, arm: str) -> list[float]:
    """The metric of each run of an arm."""
    return [value for (name, _), value in final_values(records, metric).items() if name == arm]


def _mean(values: Iterable[float], sign: str = '') -> str:
    """The mean, and the deviation if there are two values or more."""
    values = list(values)
    return f'{mean(values):{sign}.2f}' + (f' ± {stdev(values):.2f}' if len(values) > 1 else '')


def _is_measured(difference: Difference | None) -> bool:
    return difference is not None and difference.error is not None


def _runs(difference: Difference) -> str:
    one, other = difference.runs
    return str(one) if one == other else f'{one} and {other}'


def _images(difference: Difference) -> str:
    if difference.images is None:
        return MISSING
    return f'{difference.images_error:.2f}' + (' (borrowed)' if difference.images.is_borrowed else '')


def _length(stage: Stage, records: Records) -> str:
    """Epochs, unless the title has them, and learning rate."""
    record = next(iter(records.values()), None)
    if record is None:
        return MISSING
    epochs = '' if 'epochs' in stage.title else f'{record["epochs"]} epochs, '
    return f'{epochs}learning rate {record["optimizer"]["lr"]:.2g}'


def _what(records: Records) -> str:
    record = next(iter(records.values()))
    optimizer = record['optimizer']
    text = f'{record["epochs"]} epochs of batches of {record["batch_size"]}, learning rate {optimizer["lr"]:.2g}'
    training, images = number_of_images(records, 'train'), number_of_images(records)
    counts = {'training': training, 'test': images}
    known = [f'{number:,} {name}' for name, number in counts.items() if number]
    return f'{" and ".join(known)} images, {text}' if known else text


def _lambdas(records: Iterable[Mapping]) -> str:
    """The least and the largest lambda of all heads and seeds."""
    ranges = [record['lambda'] for record in records if 'lambda' in record]
    return f'{min(r[0] for r in ranges):.4g} to {max(r[1] for r in ranges):.4g}' if ranges else ''


def _accuracy(entry: Mapping[str, float], row: str) -> float:
    corrupted = mean(entry[name] for name in CORRUPTIONS)
    return {'mean of the corruptions': corrupted, 'corrupted / clean': corrupted / entry['clean']}.get(
        row, entry.get(row, 0.0)
    )
