"""Finds the dataset in a folder, whatever its format, and brings it into canonical COCO form.

What is not canonical is written into the cache directory of `tokennorm.base.files`. The name of a file has the hash
of its content, so that the labels of the user decide, and not their dates.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokennorm.base.files import cache_directory, write_atomically
from tokennorm.base.messages import shorten, user_errors
from tokennorm.base.process import without_collection
from tokennorm.datasets.coco.folder import annotation_files, find_coco
from tokennorm.datasets.coco.normalizing import normalize
from tokennorm.datasets.dialects import without_dialect
from tokennorm.datasets.image_files import is_image, left_out, list_files, suffix_of
from tokennorm.datasets.splits import CocoSplit, ReadSplit
from tokennorm.datasets.unread import CONVERTERS, UNREAD_FORMAT, OtherFormatError, check_known
from tokennorm.datasets.voc import find_voc
from tokennorm.datasets.yolo import find_yolo
from tokennorm.findings import Finding, Refusal, Rule, collected

UNREADABLE_DATA = Rule('unreadable-data', 'error', 'the data cannot be read', can_allow=False,
    why='A file is missing, damaged or ambiguous, so there is nothing to train on.',
    do='Fix the file that is named, or convert the data to COCO, YOLO or Pascal VOC')  # fmt: skip
MISSING_SPLIT = Rule('missing-split', 'error', 'there are no annotations for a split that is needed', can_allow=False,
    why='Training needs train and val. They are found by the names of files and folders.',
    do='Name the files after their splits, or divide one file with `tokennorm split`')  # fmt: skip
UNREAD_FILES = Rule('unread-files', 'note', 'files of formats that are not read',
    why='Images of these formats are neither trained on nor evaluated.',
    do='Convert them to JPEG or PNG, if they are images of the data')  # fmt: skip
UNLISTED_IMAGE = Rule('unlisted-image', 'warning', 'images next to others that no annotation file lists, left out',
    why='They are neither trained on nor evaluated.',
    do='Label them, or list them as images without objects')  # fmt: skip


def find_splits(root: str | Path, needed: Sequence[str] = ('train', 'val'), where: str = '') -> dict[str, CocoSplit]:
    """The splits of a detection dataset by name, in canonical COCO form.

    The root is a folder, or the `data.yaml` of a YOLO dataset. COCO takes precedence over other formats, but for files
    of val or test beside YOLO labels of train. What is found about the data is reported. `where` names the option in an
    error.

    Raises:
        Refusal: if there is no dataset, a needed split is missing, or a file cannot be read.
    """
    root = Path(os.path.expanduser(root))
    with collected() as found:
        try:
            return in_canonical_form(_read(root, needed), root)
        except (ValueError, OSError) as error:
            rules = {OtherFormatError: UNREAD_FORMAT, FileNotFoundError: MISSING_SPLIT}
            rule = next((rule for kind, rule in rules.items() if isinstance(error, kind)), UNREADABLE_DATA)
            raise Refusal([*found.of('error'), Finding(rule.code, 'error', where, str(error))]) from error


def _read(root: Path, needed: Sequence[str]) -> dict[str, ReadSplit]:
    """Reads the first format with the splits that are needed, one with train before others."""
    if not root.is_dir() and not (root.is_file() and root.suffix.lower() in ('.yaml', '.yml')):
        check_known(root)
        raise FileNotFoundError(f'{root} is not a folder; name the folder of the annotations and images')
    read, not_coco = list[dict[str, ReadSplit]](), None
    for find in (find_coco, find_yolo, find_voc) if root.is_dir() else (find_yolo,):
        try:
            read += filter(None, [find(root)])
        except OtherFormatError as error:  # a YOLO folder may hold another program's JSON file
            not_coco = error
        if read and {'train', *needed} <= read[-1].keys():
            return read[-1]
    for splits in read:
        if set(needed) <= splits.keys():
            return splits
    raise not_coco if not_coco and not read else _without_split(root, read, needed)


def _without_split(root: Path, read: Sequence[Mapping[str, ReadSplit]], needed: Sequence[str]) -> FileNotFoundError:
    """The error for a missing split; raises another one for files of formats that are not read."""
    files = list_files(root)
    candidates = annotation_files(root, files)
    for path in candidates:
        check_known(path)
    names = shorten([str(path.relative_to(root)) for path in candidates]) or 'none'
    near = f'its annotation files down to the second level: {names}. `tokennorm split` divides train, or one file'
    if read:
        missing = ' and '.join(name for name in needed if name not in read[0])
        (format, *_) = (split.format for split in read[0].values())
        text = f'{root} is a {format} dataset without {missing}; it has {", ".join(read[0])}; {near}'
        return FileNotFoundError(text)
    return FileNotFoundError(
        f'{root} has no annotation file for {(*needed, "train")[0]}, such as annotations/train.json, '
        f'instances_train2017.json or train/_annotations.coco.json; {near}. It is not a YOLO dataset either (no '
        'data.yaml with names, train and val), nor Pascal VOC (no Annotations/*.xml with ImageSets/Main/train.txt, no '
        f'train/*.xml). {CONVERTERS}'
    )


@without_collection()
def in_canonical_form(read: Mapping[str, ReadSplit], root: Path) -> dict[str, CocoSplit]:
    """Returns splits in canonical COCO form; writes those into the cache that are not so already."""
    if root.is_dir():
        _report_left_out(read, list_files(root))
    contents = {name: without_dialect(name, split.content) for name, split in read.items()}
    contents = normalize(contents, {name: split.image_dir for name, split in read.items()})
    splits = {}
    for name, split in read.items():
        content, file = contents[name], split.file
        if file is None or content is not split.content:
            noted = dict(format=split.format, source=split.source, images=str(split.image_dir))
            content = {**content, 'tokennorm': noted}
            file = _write(root, name, content)
        splits[name] = CocoSplit(name, file, split.image_dir, content, split.opened)
    return splits


def _write(root: Path, name: str, content: dict[str, Any]) -> Path:
    text = json.dumps(content).encode()
    digest = hashlib.blake2b(text, digest_size=8).hexdigest()
    path = cache_directory() / 'datasets' / root.resolve().name / f'{name}-{digest}.json'
    with user_errors(OSError, where='the cache directory, which TOKENNORM_CACHE sets: '):
        write_atomically(path, text)
    return path


def _report_left_out(splits: Mapping[str, ReadSplit], files: Sequence[Path]) -> None:
    """Reports files of other formats, and images next to those of the splits that none of these has."""
    if others := left_out(files):
        UNREAD_FILES.report('', f'files of formats that are not read: {others}')
    if any(split.has_list for split in splits.values()):
        return
    used = {
        os.path.abspath(os.path.join(split.image_dir, str(image.get('file_name'))))
        for split in splits.values()
        for image in split.content['images']
    }
    places = {(os.path.dirname(path), suffix_of(path)) for path in used}  # others may be masks
    others = {os.path.abspath(path) for path in files if is_image(path)} - used
    unlisted = sorted(path for path in others if (os.path.dirname(path), suffix_of(path)) in places)
    UNLISTED_IMAGE.report_items(' and '.join(splits), map(os.path.basename, unlisted))
