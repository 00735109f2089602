"""Label Studio: its YOLO export has `classes.txt` beside `images`, and no `data.yaml`."""

from pathlib import Path
from typing import Any


def read(root: Path) -> tuple[Path, dict[str, Any]] | None:
    """Returns the file, and what a `data.yaml` would have; None without it."""
    file, images = root / 'classes.txt', root / 'images'
    if not file.is_file() or not images.is_dir():
        return None
    places = {entry.name.lower(): f'images/{entry.name}' for entry in images.iterdir() if entry.is_dir()}
    return file, (places or dict(train='images')) | dict(names=file.name)
