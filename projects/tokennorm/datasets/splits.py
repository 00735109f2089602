"""Splits of a dataset: as a format's reader gives them, and in canonical COCO form."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tokennorm.datasets.coco.columns import Columns
from tokennorm.datasets.coco.entries import Content
from tokennorm.datasets.image_files import ImageFile

SPLIT_NAMES = dict(  # of folders, files and keys, the usual one first
    train=('train', 'training'), val=('val', 'valid', 'validation', 'dev'), test=('test', 'testing')
)
SPLITS = tuple(SPLIT_NAMES)
SPLIT_WORDS = {word: split for split, words in SPLIT_NAMES.items() for word in words}


@dataclass(frozen=True)
class ReadSplit:
    """One split as the reader of a format gives it, with COCO content that may not be canonical."""

    format: str
    content: Content
    image_dir: Path  # file names are relative to it
    source: str  # the annotations of the user, for messages
    file: Path | None = None  # the user's COCO file, if `content` is what it holds
    opened: Mapping[str, ImageFile] = field(default_factory=dict)  # images that were opened, by their file names
    has_list: bool = False  # of its images: others in their folders are left out on purpose


@dataclass(frozen=True)
class CocoSplit:
    """One split of a dataset, in canonical COCO form."""

    name: str  # 'train', 'val' or 'test'
    ann_file: Path  # the annotation file of the user if it is canonical, else the normalized one in the cache
    image_dir: Path  # the folder of the images; file names are relative to it
    content: Mapping[str, Any]  # the parsed annotation file
    opened: Mapping[str, ImageFile] = field(default_factory=dict)  # images that were opened, by their file names

    @property
    def source(self) -> str:
        """The annotations of the user, for messages."""
        return self.content.get('tokennorm', {}).get('source', str(self.ann_file))

    @cached_property
    def columns(self) -> Columns:
        """The annotations as arrays."""
        return Columns(self.name, self.content, self.image_dir)


def words_in(text: str) -> list[str]:
    """Returns the words of a name or path, in lower case."""
    return re.findall('[a-z]+', text.lower())


def splits_in(path: str | Path) -> set[str]:
    """Returns the splits that the parts of a relative path are named after."""
    return {SPLIT_WORDS[word] for word in words_in(str(path)) if word in SPLIT_WORDS}
