"""Annotations of other programs: CVAT, Open Images and DOTA are read with hotcoco's converters, others are named."""

import math
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokennorm.datasets.image_files import read_text
from tokennorm.datasets.splits import SPLIT_WORDS

_HEAD = 4000  # characters that tell a format
_OPEN_IMAGES = {'ImageID', 'LabelName', 'XMin'}  # columns
_TURNED = re.compile(rb'<box [^>]*rotation="0*\.?0*[1-9]')
_DOTA = re.compile(r'^([-+.\deE]+\s+){8}(?![-+.]*\d)\S+(\s+\d)?\s*$', re.M)  # eight coordinates, a class, a difficulty
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


def annotation_files(root: Path, files: Sequence[Path]) -> list[Path]:
    """Returns the files down to the second level that can hold the annotations of many images, and DOTA's folders.

    Those are COCO's JSON, CVAT's XML and Open Images' CSV.
    """
    near = [path for path in files if len(path.parts) - len(root.parts) <= 3]
    by_suffix = {suffix: [path for path in near if path.suffix.lower() == suffix] for suffix in ('.xml', '.csv')}
    many = Counter(path.parent for path in by_suffix['.xml'])  # one XML file for each image is Pascal VOC's
    found = [path for path in near if path.suffix.lower() == '.json']
    found += [p for p in by_suffix['.xml'] if many[p.parent] <= 10 and re.search(r'<annotations[\s>]', _head(p))]
    found += [p for p in by_suffix['.csv'] if set(_head(p).partition('\n')[0].split(',')) >= _OPEN_IMAGES]
    first = {path.parent: path for path in reversed(files) if path.suffix.lower() == '.txt'}
    return found + sorted(folder for folder, path in first.items() if _DOTA.search(_head(path)))


def read_export(path: Path, images: Path | None = None) -> dict[str, Any]:
    """Reads CVAT's XML, Open Images' CSV or a folder of DOTA's labels as COCO content, boxes and polygons only.

    Image names of the last two have no suffix. `images` is the folder of the images, whose sizes Open Images needs.
    Groups of objects in Open Images and difficult objects in DOTA become crowds.
    """
    import hotcoco

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        try:
            if path.is_dir():
                data = hotcoco.COCO.from_dota(str(path))
            elif path.suffix.lower() == '.xml':
                data = hotcoco.COCO.from_cvat(str(path))
            else:
                near = (one for folder in path.parents[:2] for one in folder.glob('*class-descriptions*.csv'))
                names = next(near, None)
                folder = None if images is None else str(images)
                data = hotcoco.COCO.from_oid(str(path), class_descriptions=names and str(names), images_dir=folder)
        except (ValueError, OSError) as error:
            raise ValueError(f'{path} cannot be read: {error}; export the annotations again') from error
    content = dict(data.dataset)
    for one in content['annotations']:
        one['iscrowd'] = int(bool(one.get('iscrowd') or one.get('is_group_of')))
    if path.is_dir():
        _use_corners(content, path)
    notes = [str(warning.message).removeprefix('hotcoco: ') for warning in said]
    notes = [f'{note}; export as COCO to have them' if 'unsupported shape' in note else note for note in notes]
    if path.suffix.lower() == '.xml' and (turned := len(_TURNED.findall(path.read_bytes()))):
        notes.append(f'boxes with a rotation, read without it: {turned}')
    return content | dict(tokennorm=dict(notes=notes))


def _use_corners(content: dict[str, Any], folder: Path) -> None:
    """Sets DOTA's boxes around their four corners; hotcoco's are around a rectangle that it fits to these."""
    objects: dict[int, list[dict[str, Any]]] = {image['id']: [] for image in content['images']}
    for one in content['annotations']:
        objects[one['image_id']].append(one)
    for image in content['images']:
        path = folder / f'{image["file_name"]}.txt'
        lines = [words[:8] for line in read_text(path).splitlines() if len(words := line.split()) in (9, 10)]
        for words, one in zip(lines, objects[image['id']], strict=True):  # as hotcoco, which refuses other lines
            values = [float(word) for word in words]
            if not all(map(math.isfinite, values)):
                raise ValueError(f'{path}: {" ".join(words)} are not eight finite numbers')
            (left, right), (top, bottom) = ((min(side), max(side)) for side in (values[::2], values[1::2]))
            one.update(bbox=[left, top, right - left, bottom - top], area=(right - left) * (bottom - top))


def cvat_splits(path: Path) -> list[str | None]:
    """Returns the split that the subset of each image of a CVAT file names; [] where they name fewer than two."""
    if path.suffix.lower() != '.xml' or b' subset="' not in (content := path.read_bytes()):
        return []
    subsets = (re.search(rb'\ssubset="([^"]*)"', image) for image in re.findall(rb'<image\s[^>]*>', content))
    splits = [SPLIT_WORDS.get(one[1].decode(errors='replace').lower()) if one else None for one in subsets]
    return splits if len(set(splits) - {None}) > 1 else []


def check_known(path: Path) -> None:
    """Raises `OtherFormatError` for a zip file, a labelme folder and other exports that are not read."""
    if path.is_file() and zipfile.is_zipfile(path):
        raise OtherFormatError(f'{path} is a zip file; unpack it, and name the folder')
    if path.suffix.lower() in ('.json', '.ndjson', '.jsonl') and path.is_file():
        head = _head(path)
        for pattern, name, remedy in _JSON_FORMATS:
            if re.search(pattern, head, re.S) and not _is_coco(head):
                raise OtherFormatError(f'{path} has the format of {name}, which is not read; convert it: {remedy}')


def tables(files: Sequence[Path]) -> list[Path]:
    """Returns the files that may be tables of boxes, such as those of Kaggle, Vertex AI or Hugging Face."""
    return [path for path in files if path.suffix.lower() in _TABLES]


def _is_coco(head: str) -> bool:
    return re.match(r'\s*\{', head) is not None and re.search(r'"(images|categories)"\s*:\s*\[', head) is not None


def _head(path: Path) -> str:
    try:
        with path.open(encoding='utf-8-sig', errors='replace') as file:
            return file.read(_HEAD)
    except OSError:
        return ''
