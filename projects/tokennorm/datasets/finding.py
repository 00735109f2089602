"""Finds the dataset in a folder, whatever its format: COCO, YOLO or Pascal VOC."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tokennorm.datasets.coco.folder import NotCocoError, find_coco_splits
from tokennorm.datasets.converted import convert_splits
from tokennorm.datasets.exports import OtherFormatError
from tokennorm.datasets.splits import CocoSplit
from tokennorm.datasets.voc import find_voc
from tokennorm.datasets.yolo import find_yolo


def find_splits(root: str | Path, needed: Sequence[str] = ('train', 'val')) -> dict[str, CocoSplit]:
    """The splits of a detection dataset by name. YOLO and Pascal VOC are converted to COCO json in a cache directory.

    The root is a folder, or the `data.yaml` of a YOLO dataset. COCO json files take precedence over other formats,
    but for those of val or test beside YOLO labels of train.
    """
    root = Path(root).expanduser()
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
        if isinstance(error, OtherFormatError) and root.is_file():
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
        hint = hint or '. Its YAML file needs train: and val:, the folders of the images' * (folder.format == 'YOLO')
        raise FileNotFoundError(
            f'{root} is a {folder.format} dataset without {" and ".join(missing)}; '
            f'it has {", ".join(folder.splits) or "no split"}{hint}'
        )
    return convert_splits(folder)


def _note_newer_labels(split: CocoSplit, root: Path) -> None:
    """Adds a note if YOLO or VOC labels of the same folder changed after the COCO file, which is what is read."""
    source = Path(split.source)
    with suppress(ValueError, OSError):
        folder = root.is_dir() and (find_yolo(root) or find_voc(root))
        labels = [entry.labels for entry in folder.splits.get('train', ()) if entry.labels] if folder else []
        if newer := sum(path.stat().st_mtime > source.stat().st_mtime for path in labels):
            split.content.setdefault('tokennorm', {}).setdefault('notes', []).append(
                f'{newer} label files are newer than {source}, which is read: remove it, or make it again'
            )
