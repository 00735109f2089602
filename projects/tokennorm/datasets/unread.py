"""Formats that are not read are named, with what converts them."""

import re
import zipfile
from pathlib import Path

from tokennorm.findings import Rule

CONVERTERS = '`labelformat`, `datumaro` and `coco convert` of hotcoco convert other formats to COCO'

UNREAD_FORMAT = Rule('unread-format', 'error', 'the annotations have a format that is not read', can_allow=False,
    why='COCO, LVIS, YOLO, Pascal VOC and CVAT for images are read.',
    do='Convert them, or export them as COCO')  # fmt: skip


class OtherFormatError(ValueError):
    """The annotations have a format that is not read."""


def check_known(path: Path) -> None:
    """Raises `OtherFormatError` for a zip file and a file of labelme."""
    if path.is_file() and zipfile.is_zipfile(path):
        raise OtherFormatError(f'{path} is a zip file; unpack it, and name the folder')
    if path.suffix.lower() == '.json' and re.search(r'"(imagePath|imageData|shapes)"\s*:', head(path)):
        text = 'has the format of labelme, which is not read; convert it: pip install labelme2coco; labelme2coco DIR'
        raise OtherFormatError(f'{path} {text}')


def head(path: Path) -> str:
    """Returns the first characters of a text file, '' for a file that cannot be read."""
    try:
        with path.open(encoding='utf-8-sig', errors='replace') as file:
            return file.read(4000)
    except OSError:
        return ''
