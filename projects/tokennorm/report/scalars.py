"""Reads the scalars that mmengine logs into a work directory."""

import json
from pathlib import Path

Curve = dict[int, float]  # step -> value, in ascending order of steps
COUNTERS = ('step', 'iter', 'epoch')


def read_scalars(work_dir: str | Path) -> dict[str, Curve]:
    """Returns every logged scalar of a training run by name, from all `*/vis_data/scalars.json`.

    Each start of a run writes a file of its own. From its first step on, a later file replaces the earlier ones: a
    resumed run repeats the steps after its checkpoint, and a new run in the same directory repeats them all.
    Training scalars (`loss`, `lr`, `lambda/...`) count iterations. Validation scalars (`coco/bbox_mAP`) count epochs in
    an `EpochBasedTrainLoop` and iterations otherwise.
    """
    curves: dict[str, Curve] = {}
    for path in sorted(Path(work_dir).glob('*/vis_data/scalars.json')):
        found: dict[str, Curve] = {}
        for line in path.read_text(encoding='utf-8').splitlines():
            try:
                entry = json.loads(line)
            except ValueError:  # the last line of a killed run
                continue
            # A validation entry has no `iter`; its `time` and `data_time` must not mix with those of training.
            skipped = COUNTERS if 'iter' in entry else (*COUNTERS, 'time', 'data_time')
            for name, value in entry.items():
                if name not in skipped and isinstance(value, int | float):
                    found.setdefault(name, {})[entry['step']] = value
        for name, new in found.items():
            first = min(new)
            earlier = {step: value for step, value in curves.get(name, {}).items() if step < first}
            curves[name] = earlier | dict(sorted(new.items()))
    return curves
