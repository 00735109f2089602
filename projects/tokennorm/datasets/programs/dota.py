"""DOTA: a folder of text files, one per image, with four corners, the class and the difficulty of each object."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.entries import Content
from tokennorm.datasets.image_files import read_text
from tokennorm.datasets.programs.reader import Reader, convert, head

_LINE = re.compile(r'^([-+.\deE]+\s+){8}(?![-+]?[\d.]+(\s|$))\S+(\s+\d)?\s*$', re.M)  # the class is not a number


def find(_: Sequence[Path], files: Sequence[Path]) -> list[Path]:
    """Returns the folders of its label files."""
    first = {path.parent: path for path in reversed(files) if path.suffix.lower() == '.txt'}
    return sorted(folder for folder, path in first.items() if _LINE.search(head(path)))


def read(path: Path, split: str, _: Path | None) -> Content:
    """Reads the upright box around each object; the names of the images have no suffix. Difficult ones become crowds.

    hotcoco's boxes are around a rectangle that it fits to the corners; these are around the corners.
    """
    import hotcoco

    content = convert(split, path, hotcoco.COCO.from_dota, str(path))
    objects: dict[int, list[dict[str, Any]]] = {image['id']: [] for image in content['images']}
    for one in content['annotations']:
        one['iscrowd'] = int(bool(one.get('iscrowd')))
        objects[one['image_id']].append(one)
    for image in content['images']:
        file = path / f'{image["file_name"]}.txt'
        lines = [words[:8] for line in read_text(file).splitlines() if len(words := line.split()) in (9, 10)]
        for words, one in zip(lines, objects[image['id']], strict=True):  # as hotcoco, which refuses other lines
            values = [float(word) for word in words]
            if not all(map(math.isfinite, values)):
                raise ValueError(f'{file}: {" ".join(words)} are not eight finite numbers')
            (left, right), (top, bottom) = ((min(side), max(side)) for side in (values[::2], values[1::2]))
            one.update(bbox=[left, top, right - left, bottom - top], area=(right - left) * (bottom - top))
    return content


READER = Reader('DOTA', find, read)
