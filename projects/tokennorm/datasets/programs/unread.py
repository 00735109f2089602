"""Formats that are not read: each is named with what converts it."""

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tokennorm.datasets.programs.reader import head

# Of JSON files: the pattern of a format, its name, and what to do
_JSON_FORMATS = (
    (r'"imagePath"\s*:|"imageData"\s*:|"shapes"\s*:\s*\[', 'labelme', 'pip install labelme2coco; labelme2coco DIR'),
    (
        r'"from_name"\s*:|^\s*\[.*"annotation_id"\s*:|"annotations"\s*:.*"result"\s*:',
        'Label Studio',
        'export again as COCO',
    ),
    (r'"_via_img_metadata"|"(file|shape)_attributes"\s*:', 'VIA', 'in VIA, export annotations as COCO'),
    (r'"data_row"\s*:', 'Labelbox', 'labelformat convert --input-format labelbox --output-format coco'),
    (r'"imagefilename"\s*:|^\s*\[\s*\{\s*"image"\s*:', 'CreateML', 'export again as COCO'),
    (
        r'"dm_format_version"\s*:|"categories"\s*:\s*\{\s*"label"\s*:',
        'Datumaro',
        'datum convert -i DIR -f coco -o OUT -- --save-media',
    ),
    (r'"classTitle"\s*:|"tags"\s*:.*"objects"\s*:', 'Supervisely', 'export again as COCO'),
    (r'"schema_ref"\s*:', 'V7 Darwin', 'export again as COCO'),
)
_TABLES = '.csv', '.jsonl', '.ndjson', '.manifest', '.tfrecord', '.record', '.parquet'  # that may hold boxes


class OtherFormatError(FileNotFoundError):
    """The annotations have a known format that is not read."""


def check_known(path: Path) -> None:
    """Raises `OtherFormatError` for a zip file, a labelme folder and other exports that are not read."""
    if path.is_file() and zipfile.is_zipfile(path):
        raise OtherFormatError(f'{path} is a zip file; unpack it, and name the folder')
    if path.suffix.lower() in ('.json', '.ndjson', '.jsonl') and path.is_file():
        text = head(path)
        for pattern, name, remedy in _JSON_FORMATS:
            if re.search(pattern, text, re.S) and not _is_coco(text):
                raise OtherFormatError(f'{path} has the format of {name}, which is not read; convert it: {remedy}')


def tables(files: Sequence[Path]) -> list[Path]:
    """Returns the files that may be tables of boxes, such as those of Kaggle, Vertex AI or Hugging Face."""
    return [path for path in files if path.suffix.lower() in _TABLES]


def _is_coco(text: str) -> bool:
    return re.match(r'\s*\{', text) is not None and re.search(r'"(images|categories)"\s*:\s*\[', text) is not None
