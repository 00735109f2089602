"""`tokennorm.split`: divides images into train and val."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path

from tokennorm.base.messages import UserError, in_python, user_errors
from tokennorm.commands.checks import codes_of, path_of
from tokennorm.commands.result import Result
from tokennorm.findings import Findings, judging


@dataclass(frozen=True)
class SplitResult(Result):
    """Result of `tokennorm.split`."""

    files: Mapping[str, Path]  #: annotation file per split


@in_python
def split(
    data: str | Path,
    *,
    val: float = 0.2,
    seed: int = 0,
    group: str | None = None,
    allow: Sequence[str] = (),
    strict: bool = False,
) -> SplitResult:
    """Divides the images of a COCO annotation file, or of a YOLO or Pascal VOC folder without val, into train and val.

    It writes train.json and val.json in COCO format, next to the annotation file or into the folder.

    Args:
        data: COCO annotation file of all images, or a YOLO or Pascal VOC folder.
        val: Fraction of the images for validation.
        seed: The same seed gives the same split.
        group: Images in whose file names this regular expression finds the same text stay together.
        allow: Codes of rules to overrule.
        strict: Warnings are errors.
    """
    data, allow = path_of('data', data), codes_of(allow)
    if not isinstance(val, Real) or not isinstance(seed, Integral) or not isinstance(group, str | None):
        raise UserError(f'--val {val!r} must be a number, --seed {seed!r} an integer, and --group {group!r} a text')
    if not os.path.exists(data):
        raise UserError(f'{data} not found')

    from tokennorm.datasets.coco.inspection import inspect_splits
    from tokennorm.datasets.splitting import find_unsplit, split_annotations

    with judging(Findings(allow, strict)) as found:
        with user_errors(ValueError, OSError):  # of the user's files
            splits = find_unsplit(data)
        inspect_splits(dict(train=splits['train']), open_images=False)
    found.stop()
    with user_errors(ValueError, OSError, re.error):  # such as a fraction that leaves nothing
        files = split_annotations(splits, val, seed, group)
    found.show()
    written = ', '.join(map(str, files.values()))
    return SplitResult(files, lines=[f'{written}: check them with `tokennorm check {files["train"].parent}`'])
