"""Score thresholds of each class, which the report recommends: `thresholds.json` next to the checkpoints of a run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokennorm.files import write_atomically
from tokennorm.messages import UserError

NAME = 'thresholds.json'


def write_thresholds(folder: Path, thresholds: Mapping[str, float], checkpoint: str | None) -> None:
    """Writes the lowest score of each class, and which checkpoint they were chosen for."""
    content = dict(classes=dict(thresholds), checkpoint=checkpoint, chosen='best F1 of the class at IoU 0.5')
    write_atomically(folder / NAME, json.dumps(content, indent=1).encode())


def read_thresholds(chosen: float | str | Path, checkpoint: str | Path, classes: Sequence[str]) -> list[float]:
    """Returns the lowest score of each class that counts as a detection.

    They are chosen by 'best' for the file next to the checkpoint, a number from 0 to 1 for all classes, or a file.
    """
    try:
        number = float(chosen)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        path = Path(checkpoint).with_name(NAME) if chosen == 'best' else Path(str(chosen))
    else:
        if not 0 <= number <= 1:
            raise UserError(f'score threshold {chosen} must be from 0 to 1')
        return [number] * len(classes)
    try:
        known: Any = json.loads(path.read_text())['classes']
        lowest = [known[name] for name in classes]
        if wrong := [value for value in lowest if type(value) not in (int, float) or not 0 <= value <= 1]:
            raise ValueError(f'{wrong[0]!r} is not a number from 0 to 1')
        return lowest
    except FileNotFoundError:
        raise UserError(
            f'no score thresholds: {path} not found; a training run that is validated by COCO AP writes it next to its '
            'checkpoints, and `tokennorm test --report` next to its report; or give a number'
        ) from None
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise UserError(f'{path} has no score threshold of each class ({type(error).__name__}: {error})') from None
