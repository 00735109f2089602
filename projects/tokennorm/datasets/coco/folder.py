"""Finds the annotation files and image folders of a dataset in COCO format, in any common layout."""

import gc
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokennorm.messages import shorten

SPLIT_NAMES = dict(  # of folders, files and keys, the usual one first
    train=('train', 'training'), val=('val', 'valid', 'validation', 'dev'), test=('test', 'testing')
)
SPLITS = tuple(SPLIT_NAMES)
SPLIT_WORDS = {word: split for split, words in SPLIT_NAMES.items() for word in words}
_PLAIN_WORDS = {'instances', 'annotations', 'annotation', 'coco', 'labels', 'dataset', 'data'}  # name no split


@dataclass(frozen=True)
class CocoSplit:
    """One split of a COCO-format folder."""

    name: str  # 'train', 'val' or 'test'
    ann_file: Path  # the annotation file
    image_dir: Path  # the folder of the images; file names are relative to it
    content: Mapping[str, Any]  # the parsed annotation file

    def objects_by_class(self) -> Counter[str]:
        """Returns the number of objects of each class, in the order of the file's categories, without crowds."""
        names = {category['id']: category['name'] for category in self.content['categories']}
        counts = Counter({name: 0 for name in names.values()})
        objects = (one for one in self.content['annotations'] if not one.get('iscrowd'))
        counts.update(names[one['category_id']] for one in objects if one['category_id'] in names)
        return counts


def find_coco_splits(root: str | Path, needed: Sequence[str] = ('train', 'val')) -> dict[str, CocoSplit]:
    """Finds the splits of a folder: COCO JSON files named after a split, or in a folder named after one.

    Examples are `annotations/instances_train2017.json`, `train.json` and `train/_annotations.coco.json`. If several
    files match a split, the file with the fewest other words in its name is used. Images are searched in every folder
    down to the second level. A test file without annotations, such as COCO's own, is not a split.
    """
    root = Path(root)
    if not root.is_dir():
        raise FileNotFoundError(f'{root} is not a folder; name the folder of the annotations and images')
    below = (path for pattern in ('[!.]*', '[!.]*/[!.]*') for path in sorted(root.glob(pattern)))
    folders = [root, *(path for path in below if path.is_dir())]
    files = {path: _split_of(path.relative_to(root)) for folder in folders for path in sorted(folder.glob('*.json'))}
    splits = {}
    for name in SPLITS:
        if path := _plainest([(words, path) for path, (split, words) in files.items() if split == name], name):
            content = read_coco_file(path, with_annotations=name != 'test')
            if 'annotations' in content:
                splits[name] = CocoSplit(name, path, _image_dir(content, path, name, root, folders), content)
    for name in needed or (() if splits else SPLITS):
        if name not in splits:
            found = sorted(str(path.relative_to(root)) for path in files)
            raise FileNotFoundError(
                f'{root} has no annotation file for {name}, such as annotations/{name}.json, instances_{name}2017.json '
                f'or {name}/_annotations.coco.json. Its JSON files down to the second level: '
                f'{shorten(found) or "none"}. `tokennorm split FILE` divides one file without splits'
            )
    return splits


def read_coco_file(path: Path, with_annotations: bool = True) -> dict[str, Any]:
    """Reads a COCO annotation file: an object with the lists images, annotations and categories, each of objects."""
    collects = gc.isenabled()
    gc.disable()  # it would search the growing content for garbage again and again
    try:
        content = json.loads(path.read_text(encoding='utf-8-sig'))  # Windows editors write a byte-order mark
    except OSError as error:
        raise ValueError(f'{path} cannot be read: {error.strerror}') from error
    except (ValueError, RecursionError) as error:
        reason = error if path.stat().st_size else 'the file is empty'
        raise ValueError(f'{path} cannot be read as JSON: {reason}; export the annotations again') from error
    finally:
        if collects:
            gc.enable()
    for key in ('images', 'annotations', 'categories'):
        if key == 'annotations' and not with_annotations and isinstance(content, dict) and key not in content:
            continue
        entries = content.get(key) if isinstance(content, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(f'{path} is not a COCO annotation file: it has no list of objects named {key!r}')
    return content


def _split_of(path: Path) -> tuple[str | None, int]:
    """The split that a relative path names, or None, and the number of other words in the file name."""
    words = [word for word in re.split(r'[^a-z]+', path.stem.lower()) if word]
    named = [SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS]
    extra = sum(word not in SPLIT_WORDS and word not in _PLAIN_WORDS for word in words)
    if named:
        return (named[0], extra) if len(set(named)) == 1 else (None, extra)
    parents = [re.sub(r'[^a-z]+', '', part.lower()) for part in path.parts[:-1]]
    return next((SPLIT_WORDS[part] for part in reversed(parents) if part in SPLIT_WORDS), None), extra


def _plainest(candidates: list[tuple[int, Path]], name: str) -> Path | None:
    """The file with the fewest other words in its name; None without candidates."""
    fewest = min((words for words, _ in candidates), default=0)
    best = [path for words, path in candidates if words == fewest]
    if len(best) > 1:
        raise ValueError(
            f'{" and ".join(map(str, best))} match {name} equally well: name the folder of one dataset, or move all '
            'but one of these files out of the folder'
        )
    return best[0] if best else None


def _image_dir(content: Mapping[str, Any], ann_file: Path, split: str, root: Path, folders: list[Path]) -> Path:
    """The folder that has most of the first 50 images.

    Ties are resolved in this order: a folder that is not named after another split, nor inside such a folder; a folder
    named after this split; the folder nearest to the annotation file; the shortest path.
    """
    names = [image['file_name'] for image in content['images'] if isinstance(image.get('file_name'), str)][:50]

    def rank(folder: Path) -> tuple[int, bool, bool, int, int]:
        parts = [re.sub(r'[^a-z]+', '', part.lower()) for part in folder.relative_to(root).parts]
        named = {SPLIT_WORDS[part] for part in parts if part in SPLIT_WORDS}
        shared = len(Path(os.path.commonpath([folder, ann_file])).parts)
        found = sum(os.path.isfile(folder / name) for name in names)
        return found, named <= {split}, split in named, shared, -len(parts)

    # If there is no image at all, later checks name the missing files.
    return max([ann_file.parent, *folders], key=rank)
