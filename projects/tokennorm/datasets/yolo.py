"""YOLO folders: a file with class names and image folders, and one label file per image.

The file is `data.yaml`, or what `programs.YOLO_FILES` read in its place. Each line of a label file is an object: its
class, counted from 0, and numbers as fractions of the image's width and height. They are, by what the folder says and
not by their count alone:

- a box (center, width, height), with or without a score or a track's number;
- with `kpt_shape` a box and keypoints, which are left out;
- a polygon of three corners or more; with `task: obb` an oriented box, of which the upright box around it is read.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from tokennorm.datasets.coco.file_names import resolve_file_names
from tokennorm.datasets.converted import LabeledImage, LabelFolder, coco_object
from tokennorm.datasets.image_files import is_data, left_out, list_files, list_images, read_text
from tokennorm.datasets.programs import YOLO_FILES
from tokennorm.datasets.safe_yaml import check_aliases
from tokennorm.datasets.splits import SPLIT_NAMES, SPLIT_WORDS
from tokennorm.datasets.tally import Tally
from tokennorm.findings import RULES, reports
from tokennorm.messages import shorten

_LABELS = re.compile(rb'\s*\d+(\.0*)?(\s+[-+.\de]+){4}')  # the first line of a label file
_TOLERANCE = 0.01  # beyond the image's border, as fractions; labeling tools round


class _Rules(NamedTuple):
    """What the lines of the label files mean."""

    num_classes: int
    keypoints: int = 0  # values of an object after its box
    oriented: bool = False  # polygons are oriented boxes


def find_yolo(root: Path) -> LabelFolder | None:
    """The YOLO dataset of a folder, or of a `data.yaml`; None if there is no such file."""
    file = root if root.is_file() else _find_yaml(root)
    if file is not None:
        content = _read_yaml(file)
    elif found := next(filter(None, (read(root) for read in YOLO_FILES if root.is_dir())), None):
        file, content = found
    else:
        return None
    names = _class_names(content, file)
    base = file.parent / os.path.expanduser(str(content.get('path') or ''))
    is_elsewhere = not base.is_dir()  # of another machine
    if is_elsewhere and base.name != file.parent.name:
        text = f'does not exist: relative paths are taken from {file.parent}'
        reports('path-elsewhere', '', f'path={content["path"]!r} of {file} {text}')
    splits: dict[str, list[LabeledImage]] = {}
    for split, keys in SPLIT_NAMES.items():
        value = next((content[key] for key in keys if content.get(key)), None)
        if value is None:
            continue
        places = value if isinstance(value, list) else [value]
        images = [
            path for place in places for path in _images(place, file.parent if is_elsewhere else base, file, split)
        ]
        entries = [LabeledImage(path, labels if labels.is_file() else None) for path, labels in _with_labels(images)]
        if any(entry.labels for entry in entries):
            splits[split] = entries
        elif split == 'test':  # exporting programs write it, with or without images and labels for it
            reports('unlabeled-test', '', f'test={value!r} of {file} has no labeled images: testing uses val')
        elif images:
            ((first, expected), *_) = _with_labels(images[:1])
            text = f'no label file for any of {len(images)} images; {expected} was expected for {first}'
            raise ValueError(f'{file}: {split} has {text}')
        else:
            raise ValueError(f'{file}: {split}={value!r} has no images')
    is_oriented = content.get('task') == 'obb'
    for split, entries in splits.items():
        _judge_files(split, entries, None if root.is_file() else file)
        if is_oriented:
            reports('oriented-boxes', split)
    root = file.parent if root.is_file() else root
    folders = {entry.labels.parent for entries in splits.values() for entry in entries if entry.labels}
    _judge_names(names, file, {root, *folders})
    shape = content.get('kpt_shape') or [0, 0]
    if not (isinstance(shape, list) and len(shape) == 2 and all(type(value) is int for value in shape)):
        raise ValueError(f'{file}: kpt_shape must be [number of keypoints, 2 or 3]')
    rules = _Rules(len(names), shape[0] * shape[1], is_oriented)
    return LabelFolder('YOLO', root, names, splits, rules, _read_labels, partial(_doubt, names))


def _judge_names(names: list[str], used: Path, folders: set[Path]) -> None:
    """Reports files `classes.txt`, which some programs write beside the labels, with other names for the numbers."""
    for path in sorted(folder / 'classes.txt' for folder in folders):
        if path != used and path.is_file():
            with suppress(ValueError):  # not UTF-8
                others = _lines(path)[: len(names)]
                if others != names[: len(others)]:
                    text = f'{path} has other classes, or another order, than {used.name}, by which the labels are read'
                    reports('other-class-file', '', f'{text}: {shorten(others, 5)} instead of {shorten(names, 5)}')


def _doubt(names: Sequence[str], split: str, annotations: Sequence[Mapping[str, Any]]) -> None:
    """Reports what the labels may mean otherwise."""
    used = {one['category_id'] for one in annotations}
    if len(names) > 2 and used == set(range(2, len(names) + 1)) and 'background' not in names[0].lower():
        reports('classes-from-1', split, items=[names[0]])
    corners = [len(one['segmentation'][0]) // 2 for one in annotations if 'segmentation' in one]
    if set(corners) == {4}:
        reports('four-corners', split, f'polygons of four corners, all {len(corners)}')
    if more := sum('more' in one for one in annotations):
        reports('sixth-number', split, f'{RULES["sixth-number"].summary}: {more}')


def _judge_files(split: str, entries: Sequence[LabeledImage], file: Path | None) -> None:
    """Reports images elsewhere, without or with a shared label file, and label files that no image uses."""
    counts = Counter(labels for _, labels in set(entries) if labels)
    every = {path for folder in {path.parent for path in counts} for path in folder.iterdir() if is_data(path.name)}
    texts = sorted(path for path in every - counts.keys() if path.suffix.lower() == '.txt')
    folders = {entry.image.parent for entry in entries}
    if file is not None:  # otherwise the user named a file, which may be anywhere
        outside = sorted(os.path.normpath(one) for one in folders if not _is_inside(one, file.parent))
        if outside:
            text = f'images and labels outside of {file.parent}, which {file.name} names'
            reports('images-elsewhere', split, text, outside)
    if unused := [str(path) for path in texts if _LABELS.match(path.read_bytes()[:1000])]:
        reports('label-without-image', split, items=unused)
        if others := left_out(path for folder in folders for path in folder.iterdir()):
            reports('unread-files', split, f'files of formats that are not read: {others}')
    # such as p1.jpg and p1.png
    if shared := sorted(str(image) for image, labels in set(entries) if labels and counts[labels] > 1):
        reports('shared-label-file', split, items=shared)
    if without := [str(image) for image, labels in entries if labels is None]:
        reports('image-without-label', split, items=without)


def _is_inside(folder: Path, root: Path) -> bool:
    return any(Path(real(folder)).is_relative_to(real(root)) for real in (os.path.abspath, os.path.realpath))


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def names_of_lines(path: Path) -> list[str]:
    """Returns class names: that of class 0 is in the first line."""
    names = [line.strip() for line in read_text(path).rstrip().splitlines()]
    if '' in names:
        raise ValueError(f'{path}: line {names.index("") + 1} is empty, and each line is the name of a class')
    return names


def _read_labels(rules: _Rules, entry: LabeledImage, size: tuple[int, int], tally: Tally) -> list[dict[str, Any]]:
    if entry.labels is None:
        return []
    objects = []
    for number, line in enumerate(read_text(entry.labels).splitlines(), 1):
        if line.strip():
            try:
                objects.append(_read_line(line.split(), size, rules))
            except _LabelError as error:
                tally(error.code, f'{entry.labels.parent.name}/{entry.labels.name}, line {number}: {error}')
    return objects


class _LabelError(ValueError):
    """A line that is not an object, with the code of the rule about it."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def _find_yaml(root: Path) -> Path | None:
    """`data.yaml` or `dataset.yaml`, or else the only YAML file of the folder with `names`."""
    paths = sorted([*root.glob('*.yaml'), *root.glob('*.yml')])
    usual = [path for path in paths if path.stem in ('data', 'dataset')]
    if len({text for text in map(Path.read_bytes, usual) if b'names' in text}) > 1:
        raise ValueError(f'{" and ".join(map(str, usual))} differ: name the one that is meant instead of the folder')
    others = [path for path in paths if 'names' in path.read_text(errors='replace')]
    return usual[0] if usual else others[0] if len(others) == 1 else None


def _read_yaml(file: Path) -> Mapping[str, Any]:
    try:
        text = read_text(file)
        check_aliases(text)
        content = yaml.safe_load(text)
        as_written = yaml.load(text, yaml.BaseLoader)  # no, NO and 1.10 are names, too
    except (OSError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f'{file} cannot be read as YAML: {" ".join(str(error).split())}') from error
    if not isinstance(content, dict):
        raise ValueError(f'{file} is not a YOLO dataset: it needs names, train and val')
    content, as_written = ({str(key).lower(): one for key, one in each.items()} for each in (content, as_written))
    if nested := [key for key in ('path', 'nc', 'task') if isinstance(content.get(key), list | dict)]:
        raise ValueError(f'{file}: {nested[0]} must be a word or a number')
    if isinstance(as_written.get('names'), dict) and len(as_written['names']) < len(_keys_of_names(text)):
        raise ValueError(f'{file}: names has a number twice')
    return content | ({'names': as_written['names']} if as_written.get('names') else {})


def _keys_of_names(text: str) -> list[str]:
    """The keys of the mapping `names` of a YAML file, with those that are there twice."""
    root = yaml.compose(text, yaml.BaseLoader)
    return [entry.value for key, node in root.value if key.value.lower() == 'names' for entry, _ in node.value]


def _class_names(content: Mapping[str, Any], file: Path) -> list[str]:
    names = content.get('names')
    if isinstance(names, str) and (file.parent / names).is_file():
        names = names_of_lines(file.parent / names)
    if isinstance(names, dict):
        numbered = {int(key): name for key, name in names.items() if str(key).strip().isdigit()}
        names = [numbered.get(i) for i in range(len(names))]
    if not isinstance(names, list) or not names or any(isinstance(name, list | dict | None) for name in names):
        raise ValueError(f'{file}: names must be a list of names, or a mapping whose keys count from 0')
    names = [str(name) for name in names]
    if str(content.get('nc') or len(names)).strip() != str(len(names)):
        reports('class-count', '', f'{file}: nc={content["nc"]!r:.20}, but names has {len(names)} classes', names)
    return names


def _images(value: Any, base: Path, file: Path, split: str) -> list[Path]:
    """The images of a folder, or of a text file with a path per line; none of a test folder that does not exist."""
    if not isinstance(value, str):
        raise ValueError(f'{file}: {split} must be a folder, a text file or a list of these')
    # Some write ../train/images for the folder next to the file.
    text = str(value).replace('\\', '/')
    tried = [base / text, file.parent / text, file.parent / text.removeprefix('../')]
    if text.startswith('../') and tried[0].exists() and tried[2].exists() and not tried[0].samefile(tried[2]):
        raise ValueError(f'{file}: {split}={value!r} may mean {tried[0].resolve()} or {tried[2]}: write the whole path')
    # Some write data/train.txt for the file next to it, notebooks /content/NAME/train/images.
    parts = text.split('/')
    # One folder alone, such as `images`, may be that of several splits.
    least = 1 if text.endswith('.txt') or SPLIT_WORDS.get(parts[-1].lower()) == split else 2
    tails = [file.parent.joinpath(*parts[i:]) for i in range(1, len(parts) - least + 1)]
    found = next((path for path in [*tried, *tails] if path.exists()), None)
    if found is None and split == 'test':
        return []
    if found is None:
        looked = ' and '.join(dict.fromkeys(map(str, tried)))
        raise ValueError(f'{file}: {split}={value!r} not found; looked for {looked}')
    if found.is_dir():
        return list_images(found)
    lines = [dict(file_name=line if line.startswith('./') else str(base / line)) for line in _lines(found)]
    images = resolve_file_names(lines, found.parent, list_files(file.parent), lambda _: False)
    paths = [found.parent / image['file_name'] for image in images]
    if missing := [line for line, path in zip(_lines(found), paths, strict=True) if not path.is_file()]:
        reports('listed-image-missing', split, f'images that {found} lists and that do not exist', missing)
    return [path for path in paths if path.is_file()]


def _with_labels(images: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """The images with the files of their labels, which may not exist.

    By YOLO's rule the last folder `images` becomes `labels`, in any case; otherwise they are next to the image.
    """
    for image in images:
        parts = list(image.parts)
        places = [i for i, part in enumerate(parts[:-1]) if part.lower() == 'images']
        tried = []
        for name in ('labels', 'Labels', 'LABELS') if places else ():
            parts[places[-1]] = name
            tried += [Path(*parts).with_suffix(suffix) for suffix in ('.txt', '.TXT')]
        # next to images/, too, where not even Ultralytics looks, so that the image would be background
        tried += [image.with_suffix(suffix) for suffix in ('.txt', '.TXT')]
        yield image, next((path for path in tried if path.is_file()), tried[0])


def _read_line(words: list[str], size: tuple[int, int], rules: _Rules) -> dict[str, Any]:
    """One line of a label file as a COCO annotation. A sixth value of a box, its score or track, is ignored."""
    try:
        values = [float(word) for word in words]
    except ValueError:
        raise _LabelError('invalid-label', f'{" ".join(words)!r:.80} is not a list of numbers') from None
    count, more = len(values), {}
    is_box = count in (5, 5 + rules.keypoints)
    if rules.keypoints and not is_box:
        text = f'{count} numbers are not a class, a box and the keypoints of kpt_shape ({rules.keypoints})'
        raise _LabelError('invalid-label', text)
    if count == 6 and not is_box:
        is_box, more = True, dict(more=values[5])
        if rules.oriented or not (0 <= values[5] <= 1 or (values[5] > 0 and values[5].is_integer())):
            text = f'{words[5]} after the box is not a score from 0 to 1; write four corners instead of an angle'
            raise _LabelError('invalid-label', text)
    if not is_box and (count < 7 or count % 2 == 0):
        text = f'{count} numbers are neither a class and a box (5) nor a class and a polygon (7, 9, ...)'
        raise _LabelError('invalid-label', text)
    label, coordinates = values[0], values[1:5] if is_box else values[1:]
    if label not in range(rules.num_classes):
        raise _LabelError('unknown-class', f'class {words[0]} is not one of the {rules.num_classes} of data.yaml')
    outside = [value for value in coordinates if not -_TOLERANCE <= value <= 1 + _TOLERANCE]  # NaN too
    if outside:
        raise _LabelError('label-outside-image', f'{outside[0]:g} is not between 0 and 1')
    corners = np.reshape(coordinates, (-1, 2)) * size
    if is_box:
        center, sides = corners
        return coco_object(int(label) + 1, [*(center - sides / 2).tolist(), *sides.tolist()]) | more
    box = [*corners.min(0).tolist(), *np.ptp(corners, 0).tolist()]
    return coco_object(int(label) + 1, box, () if rules.oriented else corners.flatten().tolist())
