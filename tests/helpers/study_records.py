"""Records of study runs."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CONFIG = ROOT / 'projects' / 'experiments' / 'study' / 'configs' / 'cpu.py'

# Per seed
AP = {'LN': (0.30, 0.32, 0.31), 'LN+DPN': (0.31, 0.35, 0.33), 'DTN': (0.30, 0.30, 0.30), 'DTN+DPN': (0.36, 0.37, 0.38)}


def record(run, metric, value, **more):
    """A run of four epochs that was validated at the second and the fourth."""
    return dict(
        arm=run.arm,
        seed=run.seed,
        finished=True,
        fingerprint=str(run),
        epochs=4,
        batch_size=8,
        optimizer=dict(type='AdamW', lr=1e-3),
        curve={'2': {metric: 0.9}, '4': {metric: value}},  # the best epoch is not the last
        seconds=90.0,
        cpu_seconds=60.0,
        machines=['a machine'],
        versions=dict(python='3.11', torch='2.11'),
        parameters=1234567,
        train_images=400,
        val_images=150,
    ) | dict(more)


def keep(folder, records):
    """Writes made-up records as kept results: a list of runs, and of the arguments of `record` after the run."""
    stages = {}
    for run, *arguments, more in records:
        stages.setdefault(run.stage, []).append(record(run, *arguments, **more))
    folder.mkdir(parents=True, exist_ok=True)
    for stage, content in stages.items():
        (folder / f'{stage}.json').write_text(json.dumps(content))
