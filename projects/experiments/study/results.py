"""Kept results of a study: the records of its finished runs as small JSON files, one per stage."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.study.plan import Study
from experiments.study.training import fingerprint, has_config, read_record
from tokennorm.base.files import write_atomically

Records = dict[tuple[str, int], dict[str, Any]]  # of a stage, by arm and seed


def keep_results(study: Study, folder: Path) -> list[Path]:
    """Writes the finished runs of each stage to `folder/STAGE.json`, one run per line; returns the changed files.

    Runs that the files already hold stay in them, unless the work directory has finished them again. The files hold the
    curve of the stage's metric only, rounded to five decimals, and the scores per image, where there are some. A run
    that several stages share is kept once.

    Raises:
        ValueError: if the config of a run differs from the plan: a run of the work directory, or one kept earlier.
    """
    paths = []
    for name, stage in study.stages.items():
        path = folder / f'{name}.json'
        kept = _read(path)
        new: Records = {}
        for run in study.runs_of(stage):
            record = read_record(study.folder(run))
            if record and record['finished'] and study.home(run) == name:
                new[run.arm, run.seed] = _small(record, stage.metric, study.folder(run) / 'scores.json')
        for run in study.runs_of(stage):
            record = (kept | new).get((run.arm, run.seed))
            if new and record:
                cfg = study.run_config(run)
                if not has_config(record, cfg):
                    raise ValueError(f'{path}: {run} has another config than {study.config}')
                record['fingerprint'] = fingerprint(cfg)
        if new and kept | new != kept:
            order = [(run.arm, run.seed) for run in study.runs_of(stage) if (run.arm, run.seed) in kept | new]
            lines = ',\n'.join(json.dumps((kept | new)[key]) for key in order)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, f'[\n{lines}\n]\n'.encode())
            paths.append(path)
    return paths


def read_results(study: Study, folder: Path) -> dict[str, Records]:
    """The kept records by stage, in the order of the tables. A stage also has the runs that it shares with others."""
    by_folder = {}
    for name, stage in study.stages.items():
        found = _read(folder / f'{name}.json')
        runs = {(run.arm, run.seed): run for run in study.runs_of(stage)}
        if unknown := set(found) - set(runs):
            raise ValueError(f'{folder}/{name}.json holds {sorted(unknown)}, which {study.config} does not have')
        by_folder |= {study.folder(runs[key]): record for key, record in found.items()}
    return {
        name: {
            (run.arm, run.seed): by_folder[study.folder(run)]
            for run in study.runs_of(stage)
            if study.folder(run) in by_folder
        }
        for name, stage in study.stages.items()
    }


def read_repeats(study: Study, folder: Path) -> dict[str, Records]:
    """Runs that were trained a second time with the same seed, by stage: those of `STAGE_repeated.json`.

    The plan does not have them. Their values differ from the first ones by rounding only.
    """
    return {name: found for name in study.stages if (found := _read(folder / f'{name}_repeated.json'))}


def number_of_images(records: Records, split: str = 'val') -> int | None:
    """Number of test images of a stage, or of `train` images; None if no record has it."""
    found = (record.get(f'{split}_images') for record in records.values())
    scored = (record['scores']['images'] for record in records.values() if split == 'val' and 'scores' in record)
    return next((number for number in (*found, *scored) if number), None)


def value_at(record: Mapping[str, Any], epoch: int, metric: str) -> float:
    """The metric after an epoch. `CocoMetric` gives none if a detector found nothing, which is an AP of 0."""
    values = record['curve'][str(epoch)]
    return values.get(metric, 0.0) if metric.startswith('coco/') else values[metric]


def final_values(records: Records, metric: str) -> dict[tuple[str, int], float]:
    """The metric at the end, by arm and seed: accuracy in percent, AP from 0 to 100.

    That of the scored images where a run has them: the intervals are theirs, and another machine may round the last
    epoch's otherwise.
    """
    scale = 100 if metric.startswith('coco/') else 1
    return {
        key: scale * (record['scores']['value'] if 'scores' in record else value_at(record, record['epochs'], metric))
        for key, record in records.items()
    }


def _read(path: Path) -> Records:
    if not path.is_file():
        return {}
    try:
        return {(record['arm'], record['seed']): record for record in json.loads(path.read_text('utf-8'))}
    except (json.JSONDecodeError, TypeError, KeyError) as error:
        raise ValueError(f'{path} does not hold results: {error}; write it with --keep') from None


def _small(record: Mapping[str, Any], metric: str, scores: Path) -> dict[str, Any]:
    curve = {
        epoch: {metric: round(values[metric], 5)} if metric in values else {}
        for epoch, values in record['curve'].items()
    }
    times = {key: round(record[key], 1) for key in ('seconds', 'cpu_seconds')}
    more = dict(scores=json.loads(scores.read_text(encoding='utf-8'))) if scores.is_file() else {}
    return {k: v for k, v in record.items() if k not in ('command', 'stage')} | times | dict(curve=curve) | more
