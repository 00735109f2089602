"""Kept results of a study: the records of its finished runs as small JSON files, one per stage.

The report can be regenerated from them without the work directory, which holds the weights.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.study.plan import Run, Study
from experiments.study.records import fingerprint, has_config, read_record
from tokennorm.files import write_atomically

Records = dict[tuple[str, int], dict[str, Any]]  # of a stage, by arm and seed
_DROPPED = ('command', 'stage')


def read_runs(study: Study) -> dict[str, Records]:
    """The records in the work directory, by stage: those of all runs that have begun."""
    found: dict[str, Records] = {name: {} for name in study.stages}
    for stage in study.stages.values():
        for arm in stage.arms:  # in the order of the tables
            for seed in stage.seeds or study.seeds:
                folder = study.folder(Run(stage.name, arm, seed))
                record = read_record(folder)
                if record is not None:
                    scores = folder / 'scores.json'
                    more = dict(scores=json.loads(scores.read_text())) if scores.is_file() else {}
                    found[stage.name][arm, seed] = record | more
    return found


def keep_results(study: Study, folder: Path) -> list[Path]:
    """Writes the finished runs of each stage to `folder/STAGE.json`, one run per line; returns the files.

    Runs that the files already hold stay in them, unless the work directory has finished them again. The files hold the
    curve of the stage's metric only, rounded to five decimals. A run that several stages share is kept once.

    Raises:
        ValueError: if a stage has new runs, and kept ones of another config.
    """
    paths = []
    kept = read_results(study, folder) if any((folder / f'{name}.json').is_file() for name in study.stages) else {}
    for name, records in read_runs(study).items():
        metric = study.stages[name].metric
        own = {key for key in records if study.home(Run(name, *key)) == name}
        finished = {key: _small(r, metric) for key, r in records.items() if r['finished'] and key in own}
        for (arm, seed), record in finished.items():
            cfg = study.run_config(Run(name, arm, seed))
            if has_config(record, cfg):
                record['fingerprint'] = fingerprint(cfg)
        if not finished:
            continue
        old = {key: record for key, record in kept.get(name, {}).items() if study.home(Run(name, *key)) == name}
        if any(old.get(key) != record for key, record in finished.items()):
            for (arm, seed), record in old.items():
                if record['fingerprint'] != fingerprint(study.run_config(Run(name, arm, seed))):
                    raise ValueError(
                        f'{folder / name}.json: {arm} with seed {seed} has another config than {study.config}'
                    )
        finished = old | finished
        order = [(arm, seed) for arm in study.stages[name].arms for seed in study.seeds]
        lines = ',\n'.join(json.dumps(finished[key]) for key in order if key in finished)
        path = folder / f'{name}.json'
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, f'[\n{lines}\n]\n'.encode())
        paths.append(path)
    return paths


def read_results(study: Study, folder: Path) -> dict[str, Records]:
    """The kept records, by stage. A stage without a file has none."""
    found: dict[str, Records] = {name: {} for name in study.stages}
    paths = {name: folder / f'{name}.json' for name in study.stages}
    if not any(path.is_file() for path in paths.values()):
        raise FileNotFoundError(
            f'{folder} has no results of this study, expected {", ".join(p.name for p in paths.values())}'
        )
    for name, path in paths.items():
        if not path.is_file():
            continue
        try:
            records = {(record['arm'], record['seed']): record for record in json.loads(path.read_text('utf-8'))}
        except (json.JSONDecodeError, TypeError, KeyError) as error:
            raise ValueError(f'{path} does not hold results: {error}; write it with --keep') from None
        for arm, seed in records:
            if arm not in study.stages[name].arms or seed not in study.seeds:
                raise ValueError(f'{path} holds arm {arm!r} with seed {seed}, which {study.config} does not have')
        found[name] = records
    shared = {
        study.folder(Run(name, *key)): record for name, records in found.items() for key, record in records.items()
    }
    for name, stage in study.stages.items():
        runs = ((arm, seed) for arm in stage.arms for seed in stage.seeds or study.seeds)  # in the order of the tables
        folders = {key: study.folder(Run(name, *key)) for key in runs}
        found[name] = {key: shared[path] for key, path in folders.items() if path in shared}
    return found


def _small(record: Mapping[str, Any], metric: str) -> dict[str, Any]:
    curve = {
        epoch: {metric: round(values[metric], 5)} if metric in values else {}
        for epoch, values in record['curve'].items()
    }
    times = {key: round(record[key], 1) for key in ('seconds', 'cpu_seconds')}
    return {key: value for key, value in record.items() if key not in _DROPPED} | times | dict(curve=curve)
