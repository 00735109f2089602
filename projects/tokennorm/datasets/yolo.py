"""YOLO folders: `data.yaml` with class names and image folders, and one label file per image.

Label Studio's `classes.txt` beside `images` is read in place of a `data.yaml`. Each line of a label file is an object:
its class, counted from 0, and numbers as fractions of the image's width and height. They are, by what the folder says
and not by their count alone:

- a box (center, width, height), with or without a score or a track's number;
- with `kpt_shape` a box and keypoints, which are left out;
- a polygon of three corners or more; with `task: obb` an oriented box, of which the upright box around it is read.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tokennorm.base.messages import counted
from tokennorm.datasets.coco.entries import Entry, as_coco
from tokennorm.datasets.coco.file_names import find_files
from tokennorm.datasets.image_files import (
    UNREADABLE_IMAGE,
    is_data,
    list_files,
    list_images,
    map_files,
    open_image,
    read_lines,
    read_text,
)
from tokennorm.datasets.splits import SPLIT_NAMES, SPLIT_WORDS, ReadSplit
from tokennorm.findings import Rule

# The first four are also reported for Pascal VOC.
INVALID_LABEL = Rule('invalid-label', 'error', 'labels that are not objects of the format',
    why='A line of YOLO is a class and a box (5 numbers with spaces between them and points for decimals) or a polygon '
        '(7, 9, ...), an object of Pascal VOC has one bndbox. Allowed, they are left out.',
    do='Correct these labels')  # fmt: skip
LISTED_IMAGE_MISSING = Rule('listed-image-missing', 'error', 'listed images that do not exist',
    why='Their objects would be neither learned nor evaluated. Allowed, they are left out.',
    do='Restore the files, or remove the lines')  # fmt: skip
IMAGE_WITHOUT_LABEL = Rule('image-without-label', 'note', 'images without a label or XML file, read as background',
    why='Training learns that there is nothing in them.', do='Label them, if there are objects')  # fmt: skip
LABEL_WITHOUT_IMAGE = Rule('label-without-image', 'warning', 'label or XML files without an image, left out',
    why='Their objects are neither learned nor evaluated.',
    do='Restore the images, or convert them to a format that is read')  # fmt: skip
CLASS_COUNT = Rule('class-count', 'error', 'nc is not the number of names',
    why='One of the two is wrong, so that labels may have the names of others. Allowed, the names count.',
    do='Correct nc or names')  # fmt: skip
UNKNOWN_CLASS = Rule('unknown-class', 'error', 'labels whose class has no name',
    why='Classes of YOLO count from 0; if no label has class 0, subtract 1 from all. Allowed, they are left out.',
    do='Correct these labels, or the names in data.yaml')  # fmt: skip
LABEL_OUTSIDE_IMAGE = Rule('label-outside-image', 'error',
    'coordinates of YOLO must be fractions of the image, between 0 and 1',
    why='Pixels instead of fractions would give boxes outside of all images. Programs round, so 0.01 beyond is read. '
        'Allowed, these labels are left out.',
    do='Divide pixels by the width and height of the image')  # fmt: skip
CLASSES_FROM_1 = Rule('classes-from-1', 'warning', 'no label has class 0, and all others occur: do they count from 1?',
    why='YOLO counts from 0: each object would have the name of the next class.',
    do='Subtract 1 from each class, or allow this for a class without objects')  # fmt: skip
FOUR_CORNERS = Rule('four-corners', 'note', 'polygons of four corners, all of them', why='They are read as masks.',
    do='Write task: obb in data.yaml, if they are oriented boxes')  # fmt: skip

_LABELS = re.compile(rb'\s*\d+(\.0*)?(\s+[-+.\de]+){4}')  # the first line of a label file
_TOLERANCE = 0.01  # beyond the image's border, as fractions; labeling tools round
_MOST_ALIASES = 10  # of YAML; 300 bytes of many may expand to gigabytes

Labeled = list[tuple[Path, Path]]  # images, and where the label file of each is or would be


class _Rules(NamedTuple):
    """What the lines of the label files mean."""

    names: list[str]  # of the classes
    keypoints: int  # values of an object after its box
    oriented: bool  # polygons are oriented boxes


def find_yolo(root: Path) -> dict[str, ReadSplit]:
    """Reads the YOLO dataset of a folder, or of a `data.yaml`."""
    file = root if root.is_file() else _find_yaml(root)
    if file is not None:
        content = _read_yaml(file)
    elif (root / 'images').is_dir() and (root / 'classes.txt').is_file():  # Label Studio's
        file = root / 'classes.txt'
        content = dict(names=read_lines(file))
    else:
        return {}
    if not set(content) & {key for keys in SPLIT_NAMES.values() for key in keys}:  # nor does supervision write them
        content |= _usual_folders(file.parent)
    shape = content.get('kpt_shape', ['0', '0'])
    if not isinstance(shape, list) or len(shape) != 2 or not all(str(value).isdigit() for value in shape):
        raise ValueError(f'{file}: kpt_shape must be [number of keypoints, 2 or 3]')
    rules = _Rules(_class_names(content, file), int(shape[0]) * int(shape[1]), content.get('task') == 'obb')
    splits = _images_of_splits(content, file)
    return {split: _read(split, labeled, file.parent, rules) for split, labeled in splits.items()}


def _usual_folders(root: Path) -> dict[str, str]:
    """The image folders of splits: in `images`, or `images` in folders of splits; or else `images` of train."""
    inner = {path.name.lower(): f'images/{path.name}' for path in root.glob('images/*/')}
    outer = {path.parent.name.lower(): f'{path.parent.name}/images' for path in root.glob('*/images/')}
    found = {name: place for name, place in (inner | outer).items() if name in SPLIT_WORDS}
    return found or (dict(train='images') if (root / 'images').is_dir() else {})


def _find_yaml(root: Path) -> Path | None:
    """`data.yaml` or `dataset.yaml`, or else the only YAML file of the folder with `names`."""
    paths = sorted([*root.glob('*.yaml'), *root.glob('*.yml')])
    usual = [path for path in paths if path.stem in ('data', 'dataset')]
    if len({text for text in map(Path.read_bytes, usual) if b'names' in text}) > 1:
        raise ValueError(f'{" and ".join(map(str, usual))} differ: name the one that is meant instead of the folder')
    others = [path for path in paths if 'names' in path.read_text(errors='replace')]
    return usual[0] if usual else others[0] if len(others) == 1 else None


def _read_yaml(file: Path) -> dict[str, Any]:
    """The content with all values as text: no, NO and 1.10 are names, too."""
    try:
        text = read_text(file)
        if sum(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.BaseLoader)) > _MOST_ALIASES:
            raise yaml.YAMLError(f'it has more than {_MOST_ALIASES} aliases')
        content = yaml.load(text, yaml.BaseLoader)
    except (OSError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f'{file} cannot be read as YAML: {" ".join(str(error).split())}') from error
    if not isinstance(content, dict):
        raise ValueError(f'{file} is not a YOLO dataset: it needs names, train and val')
    content = {str(key).lower(): value for key, value in content.items() if value not in ('', '~', 'null')}
    if nested := [key for key in ('path', 'nc', 'task') if not isinstance(content.get(key, ''), str)]:
        raise ValueError(f'{file}: {nested[0]} must be a word or a number')
    return content


def _class_names(content: Mapping[str, Any], file: Path) -> list[str]:
    names = content.get('names')
    if isinstance(names, dict):
        numbered = {int(key): name for key, name in names.items() if key.strip().isdigit()}
        names = [numbered.get(i) for i in range(len(names))]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f'{file}: names must be a list of names, or a mapping whose keys count from 0')
    if content.get('nc', '0').strip() not in ('0', str(len(names))):
        CLASS_COUNT.report('', f'{file}: nc={content["nc"]:.20}, but names has {counted(len(names), "class")}', names)
    return names


def _images_of_splits(content: Mapping[str, Any], file: Path) -> dict[str, Labeled]:
    base = file.parent / os.path.expanduser(content.get('path', ''))
    if not base.is_dir():  # of another machine
        base = file.parent
    splits: dict[str, Labeled] = {}
    for split, keys in SPLIT_NAMES.items():
        value = next((content[key] for key in keys if content.get(key)), None)
        if value is None:
            continue
        places = value if isinstance(value, list) else [value]
        images = [(image, _labels_of(image)) for place in places for image in _images(place, base, file, split)]
        if any(labels.is_file() for _, labels in images):
            splits[split] = images
        elif split != 'test':  # exporting programs write it, with or without images and labels for it
            text = f'{file}: {split}={value!r} has no images'
            if images:
                text = f'{file}: {split} has no label file for any of {counted(len(images), "image")}'
                text += f'; {images[0][1]} was expected for {images[0][0]}'
            raise ValueError(text)
    return splits


def _images(value: Any, base: Path, file: Path, split: str) -> list[Path]:
    """The images of a folder, or of a text file with a path per line; none of a test folder that does not exist."""
    if not isinstance(value, str):
        raise ValueError(f'{file}: {split} must be a folder, a text file or a list of these')
    text = value.replace('\\', '/')
    parts = [part for part in text.split('/') if part not in ('', '.', '..')]
    # Roboflow writes ../train/images for a folder next to the file, notebooks /content/NAME/train/images. One folder
    # alone, such as `images`, may be that of several splits.
    least = 1 if text.endswith('.txt') or SPLIT_WORDS.get(Path(text).name.lower()) == split else 2
    ends = [file.parent.joinpath(*parts[i:]) for i in range(len(parts) - least + 1)]
    place = next((path for path in (base / text, *ends) if path.exists()), None)
    if place is None and split != 'test':
        raise ValueError(f'{file}: {split}={value!r} not found; looked for {base / text}')
    if place is None or place.is_dir():
        return list_images(place) if place else []
    lines = read_lines(place)
    paths = [(place.parent if line.startswith('./') else base) / line for line in lines]
    others = find_files(list(map(str, paths)), list_files(file.parent))
    paths = [others.get(str(path), path) for path in paths]
    if missing := [line for line, path in zip(lines, paths, strict=True) if not path.is_file()]:
        LISTED_IMAGE_MISSING.report(split, f'images that {place} lists and that do not exist', missing)
    return [path for path in paths if path.is_file()]


def _labels_of(image: Path) -> Path:
    """The label file of an image, which may not exist: in `labels` instead of the last `images`, or next to it."""
    beside = image.with_suffix('.txt').as_posix()
    tried = [re.sub(r'(?i)^(.*/|)images/', rf'\g<1>{name}/', beside) for name in ('labels', 'Labels')]
    # Not even Ultralytics looks next to the image then, so that it would be background.
    paths = list(map(Path, [*tried, beside]))
    return next((path for path in paths if path.is_file()), paths[0])


def _read(split: str, labeled: Labeled, root: Path, rules: _Rules) -> ReadSplit:
    _judge_files(split, labeled)
    names = [str(path.relative_to(root) if path.is_relative_to(root) else path.absolute()) for path, _ in labeled]
    files = map_files(open_image, [image for image, _ in labeled], f'Images of {split}')
    opened, images = dict(zip(names, files, strict=True)), list[tuple[Entry, list[Entry]]]()
    for name, (image, labels) in zip(names, labeled, strict=True):
        problem, (width, height), *_ = opened[name]
        if problem:
            UNREADABLE_IMAGE.report(split, f'image files {problem}', [image])
        else:
            objects = _read_labels(labels, (width, height), rules, split)
            images.append((dict(file_name=name, width=width, height=height), list(objects)))
    _doubt(rules.names, split, [one for _, objects in images for one in objects])
    source = f'YOLO labels of {root}'
    return ReadSplit('YOLO', as_coco(images, rules.names), root, source, opened=opened, has_list=True)


def _judge_files(split: str, labeled: Labeled) -> None:
    """Reports images without a label file, and label files without an image."""
    IMAGE_WITHOUT_LABEL.report_items(split, (image for image, labels in labeled if not labels.is_file()))
    used = {labels for _, labels in labeled}
    every = {path for folder in {path.parent for path in used if path.is_file()} for path in folder.iterdir()}
    texts = sorted(path for path in every - used if path.suffix.lower() == '.txt' and is_data(path.name))
    LABEL_WITHOUT_IMAGE.report_items(split, (path for path in texts if _LABELS.match(path.read_bytes()[:1000])))


def _doubt(names: Sequence[str], split: str, annotations: Sequence[Entry]) -> None:
    """Reports what the labels may mean otherwise."""
    used = {one['category_id'] for one in annotations}
    if len(names) > 2 and used == set(range(2, len(names) + 1)) and 'background' not in names[0].lower():
        CLASSES_FROM_1.report(split, items=[names[0]])
    corners = [len(one['segmentation'][0]) // 2 for one in annotations if 'segmentation' in one]
    if set(corners) == {4}:
        FOUR_CORNERS.report(split, f'polygons of four corners, all {len(corners)}')


def _read_labels(labels: Path, size: tuple[int, int], rules: _Rules, split: str) -> Iterator[Entry]:
    """The objects of a label file."""
    lines = read_text(labels).splitlines() if labels.is_file() else []
    for number, line in enumerate(lines, 1):
        if words := line.split():
            try:
                yield _read_line(words, size, rules)
            except ValueError as error:
                rule, text = error.args
                rule.report(split, items=[f'{labels.parent.name}/{labels.name}, line {number}: {text}'])


def _read_line(words: Sequence[str], size: tuple[int, int], rules: _Rules) -> Entry:
    """One line of a label file as a COCO annotation. A sixth value of a box, its score or track, is ignored.

    Raises:
        ValueError: with a rule and a text.
    """
    try:
        values = [float(word) for word in words]
    except ValueError:
        raise ValueError(INVALID_LABEL, f'{" ".join(words)!r:.80} is not a list of numbers') from None
    count, label = len(values), values[0]
    is_box = count in (5, 5 + rules.keypoints)
    if count == 6 and not rules.keypoints and not rules.oriented:
        is_box = 0 <= values[5] <= 1 or (values[5] > 1 and values[5].is_integer())
    if not is_box and (rules.keypoints or count < 7 or count % 2 == 0):
        kinds = (
            f'a class, a box and {rules.keypoints} values of kpt_shape' if rules.keypoints else 'a class and a box (5)'
        )
        text = f'{count} numbers are neither {kinds} nor a class and a polygon (7, 9, ...); an angle is not read'
        raise ValueError(INVALID_LABEL, text)
    if label not in range(len(rules.names)):
        raise ValueError(UNKNOWN_CLASS, f'class {words[0]} is not one of the {len(rules.names)} of data.yaml')
    coordinates = values[1:5] if is_box else values[1:]
    outside = [value for value in coordinates if not -_TOLERANCE <= value <= 1 + _TOLERANCE]  # NaN too
    if outside:
        raise ValueError(LABEL_OUTSIDE_IMAGE, f'{outside[0]:g} is not between 0 and 1')
    x, y = [value * size[0] for value in coordinates[::2]], [value * size[1] for value in coordinates[1::2]]
    if is_box:
        (center_x, width), (center_y, height) = x, y
        box = [center_x - width / 2, center_y - height / 2, width, height]
    else:
        box = [min(x), min(y), max(x) - min(x), max(y) - min(y)]
    one: Entry = dict(category_id=int(label) + 1, bbox=[round(value, 3) for value in box], iscrowd=0)
    if not is_box and not rules.oriented:
        one['segmentation'] = [[round(value, 3) for point in zip(x, y, strict=True) for value in point]]
    return one
