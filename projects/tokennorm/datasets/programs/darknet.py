"""darknet, and CVAT's YOLO 1.1: `obj.data` with the places of the images, and a file with a class name per line."""

from pathlib import Path
from typing import Any

from tokennorm.datasets.image_files import read_text


def read(root: Path) -> tuple[Path, dict[str, Any]] | None:
    """Returns the file, and its content as that of a `data.yaml`; None without it."""
    file = root / 'obj.data'
    if not file.is_file():
        return None
    pairs = (line.partition('=')[::2] for line in read_text(file).splitlines())
    content: dict[str, Any] = {key.strip().lower(): value.strip() for key, value in pairs if value.strip()}
    named = content.get('names', '')
    names = named if (root / named).is_file() else 'obj.names'
    return file, content | dict(names=names, nc=content.get('classes'))
