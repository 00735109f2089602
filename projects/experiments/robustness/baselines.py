"""Baselines of mCE: AlexNet's errors on ImageNet-C, or another model's errors in a file of results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.robustness.mce import ALEXNET_CLEAN_ERROR, ALEXNET_ERRORS, Cells
from experiments.robustness.names import ALEXNET
from experiments.robustness.results import CLEAN, Cell, Results, cell_name, differences


@dataclass(frozen=True)
class Baseline:
    """Errors in percent, their model, and the differences between its evaluation and the model's."""

    name: str
    clean_error: float
    errors: Cells
    notes: tuple[str, ...] = ()


def alexnet_baseline(num_classes: int, subset: bool, image_size: tuple[int, int], images: int) -> Baseline:
    """Returns AlexNet's errors on the published files of ImageNet-C."""
    if num_classes != 1000 or subset:
        chosen = ', restricted to some' if subset else ''
        raise ValueError(
            f"--baseline {ALEXNET}: its errors are on ImageNet's 1000 classes, the model has {num_classes}{chosen}; "
            'evaluate another model on this data and give its file: --baseline FILE'
        )
    notes = ["computed on the fly; AlexNet's errors are on the published files, which have other elastic transforms"]
    if image_size != (224, 224):
        notes.append(f"images of {image_size[1]} x {image_size[0]}; AlexNet's errors are on 224 x 224")
    if images != 50_000:
        notes.append(f"{images} images; AlexNet's errors are on all 50000 of ImageNet's validation set")
    return Baseline(
        'AlexNet on ImageNet-C (Hendrycks & Dietterich, 2019)', ALEXNET_CLEAN_ERROR, ALEXNET_ERRORS, tuple(notes)
    )


def file_baseline(path: Path, results: Results, cells: Sequence[Cell], metric: str) -> Baseline:
    """Returns the errors of another model on the same corrupted images, from its file."""
    baseline = Results.read(path)
    other = differences(baseline.settings, results.settings, ('data', 'library'))
    if other:
        raise ValueError(f'--baseline {path} has other {" and ".join(other)}: evaluate it as this model')
    absent = [cell for cell in (CLEAN, *cells) if cell not in baseline]
    if absent:
        names = ', '.join(cell_name(cell) for cell in absent[:5])
        raise ValueError(
            f'--baseline {path} lacks {len(absent)} results ({names}): evaluate them first, with --out {path}'
        )
    notes = ()
    if baseline.settings['pipeline'] != results.settings['pipeline']:
        notes = ('the baseline was evaluated with another pipeline, and therefore on other corrupted images',)
    accuracies = baseline.table(cells, metric)
    errors = {c: {s: 100 - accuracy for s, accuracy in values.items()} for c, values in accuracies.items()}
    name = f'{baseline.settings["checkpoint"]} ({path})'
    return Baseline(name, 100 - baseline.get(CLEAN, metric), errors, notes)
