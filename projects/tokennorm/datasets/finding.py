"""Finds the dataset in a folder, whatever its format: COCO, YOLO or Pascal VOC."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tokennorm.datasets.coco.folder import NotCocoError, find_coco_splits, splits_in
from tokennorm.datasets.converted import convert_splits
from tokennorm.datasets.exports import OtherFormatError
from tokennorm.datasets.image_files import list_files
from tokennorm.datasets.splits import CocoSplit
from tokennorm.datasets.voc import find_voc
from tokennorm.datasets.yolo import find_yolo


def find_splits(root: str | Path, needed: Sequence[str] = ('train', 'val')) -> dict[str, CocoSplit]:
    """The splits of a detection dataset by name. YOLO and Pascal VOC are converted to COCO json in a cache directory.

    The root is a folder, or the `data.yaml` of a YOLO dataset. COCO json files take precedence over other formats,
    but for those of val or test beside YOLO labels of train.
    """
    root = Path(os.path.expanduser(root))
    try:
        splits = find_coco_splits(root, needed)
        folder = None
        with suppress(ValueError):  # a data.yaml of images elsewhere
            folder = None if 'train' in splits else find_yolo(root)  # COCO's own val.json beside labels of YOLO
        if 'train' in splits:
            _note_newer_labels(splits['train'], root)
        if folder is None or not {'train', *needed} <= folder.splits.keys():
            return splits
    except (FileNotFoundError, NotCocoError) as error:  # a YOLO folder may hold another program's JSON file
        if root.is_file() and (isinstance(error, OtherFormatError) or root.suffix.lower() == '.json'):
            raise
        if (folder := find_yolo(root) or find_voc(root)) is None:
            if isinstance(error, OtherFormatError | NotCocoError):
                raise
            raise FileNotFoundError(
                f'{error}. It is not a YOLO dataset either (no data.yaml with names, train and val), nor Pascal VOC '
                '(no Annotations/*.xml with ImageSets/Main/train.txt, no train/*.xml)'
            ) from None
    if missing := [name for name in needed if name not in folder.splits]:
        hint = f'. `tokennorm split {root}` divides train' if 'train' in folder.splits else ''
        hint = hint or '. A data.yaml needs train: and val:, the folders of the images' * (folder.format == 'YOLO')
        raise FileNotFoundError(
            f'{root} is a {folder.format} dataset without {" and ".join(missing)}; '
            f'it has {", ".join(folder.splits) or "no split"}{hint}'
        )
    return convert_splits(folder)


def _note_newer_labels(split: CocoSplit, root: Path) -> None:
    """Adds a note if some of the labels that `tokennorm split` made `train.json` from were edited after it."""
    if split.source != str(root / 'train.json'):
        return
    written = os.path.getmtime(split.source)
    stems = {Path(image['file_name']).stem for image in split.content['images']}
    labels = [
        path
        for path in list_files(root)
        if path.suffix.lower() in ('.txt', '.xml')
        and path.stem in stems
        and splits_in(path.parent.relative_to(root)) <= {'train'}
    ]
    with suppress(OSError):  # a link to a file that is gone
        newer = sum(path.stat().st_mtime > written for path in labels)
        if 0 < newer < len(labels):  # where all are newer, they were made from it, or copied after it
            split.content.setdefault('tokennorm', {}).setdefault('notes', []).append(
                f'{newer} of {len(labels)} label files changed after {split.source}, which is what is read'
            )
