"""Finds the dataset in a folder, whatever its format: COCO, YOLO or Pascal VOC."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tokennorm.datasets.coco.folder import NotCocoError, find_coco_splits, splits_in
from tokennorm.datasets.converted import LabelFolder, convert_splits
from tokennorm.datasets.image_files import list_files
from tokennorm.datasets.programs.unread import OtherFormatError
from tokennorm.datasets.splits import CocoSplit, recorded, repeat
from tokennorm.datasets.voc import find_voc
from tokennorm.datasets.yolo import find_yolo
from tokennorm.findings import Finding, Refusal, current, reports


def find_splits(root: str | Path, needed: Sequence[str] = ('train', 'val')) -> dict[str, CocoSplit]:
    """The splits of a detection dataset by name. YOLO and Pascal VOC are converted to COCO json in a cache directory.

    The root is a folder, or the `data.yaml` of a YOLO dataset. COCO json files take precedence over other formats,
    but for those of val or test beside YOLO labels of train. What is found about the data is reported.

    Raises:
        Refusal: if there is no dataset, a split that is needed is missing, or a file cannot be read.
    """
    root = Path(os.path.expanduser(root))
    with recorded() as findings:
        try:
            splits = _find_splits(root, needed)
        except (Refusal, ValueError, OSError) as error:
            before = [one for one in findings.of('error') if one.code not in current().allowed]
            raise Refusal([*before, *_findings_of(error)]) from error
    repeat(findings)
    return splits


def _findings_of(error: Exception) -> Sequence[Finding]:
    if isinstance(error, Refusal):
        return error.findings
    codes = {OtherFormatError: 'unread-format', FileNotFoundError: 'missing-split'}
    code = next((code for kind, code in codes.items() if isinstance(error, kind)), 'unreadable-data')
    return [Finding(code, 'error', '', str(error))]


def _find_splits(root: Path, needed: Sequence[str]) -> dict[str, CocoSplit]:
    try:
        with recorded() as findings:
            splits = find_coco_splits(root, needed)
    except (FileNotFoundError, NotCocoError) as error:  # a YOLO folder may hold another program's JSON file
        if root.is_file() and (isinstance(error, OtherFormatError) or root.suffix.lower() == '.json'):
            raise
        if (folder := find_yolo(root) or find_voc(root)) is not None:
            _check_splits(folder, root, needed)
            return convert_splits(folder)
        if isinstance(error, OtherFormatError | NotCocoError):
            raise
        raise FileNotFoundError(
            f'{error}. It is not a YOLO dataset either (no data.yaml with names, train and val), nor Pascal VOC '
            '(no Annotations/*.xml with ImageSets/Main/train.txt, no train/*.xml)'
        ) from None
    folder = None
    with suppress(ValueError), recorded() as of_labels:  # a data.yaml of images elsewhere
        folder = None if 'train' in splits else find_yolo(root)  # COCO's own val.json beside labels of YOLO
    if folder is not None and {'train', *needed} <= folder.splits.keys():
        repeat(of_labels)
        return convert_splits(folder)
    repeat(findings)
    if 'train' in splits:
        _judge_age(splits['train'], root)
    return splits


def _check_splits(folder: LabelFolder, root: Path, needed: Sequence[str]) -> None:
    if missing := [name for name in needed if name not in folder.splits]:
        hint = ''
        if 'train' in folder.splits:
            hint = f'. `tokennorm split {root}` divides train'
        elif folder.format == 'YOLO':
            hint = '. A data.yaml needs train: and val:, the folders of the images'
        raise FileNotFoundError(
            f'{root} is a {folder.format} dataset without {" and ".join(missing)}; '
            f'it has {", ".join(folder.splits) or "no split"}{hint}'
        )


def _judge_age(split: CocoSplit, root: Path) -> None:
    """Reports labels that were edited after `tokennorm split` made `train.json` from them."""
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
        newer = [str(path) for path in labels if path.stat().st_mtime > written]
        if 0 < len(newer) < len(labels):  # where all are newer, they were made from it, or copied after it
            text = f'{len(newer)} of {len(labels)} label files changed after {split.source}, which is what is read'
            reports('newer-labels', split.name, text, newer)
