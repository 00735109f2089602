"""`tokennorm.check`: judges a dataset and draws its annotations, or judges a config."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokennorm.base.messages import counted, in_python, shorten
from tokennorm.commands.checks import check_at_least_one, codes_of, path_of
from tokennorm.commands.importing import import_openmmlab
from tokennorm.commands.result import Result
from tokennorm.config.paths import config as config_path
from tokennorm.findings import Finding, Findings, judging
from tokennorm.plan.options import check_data


@dataclass(frozen=True)
class CheckResult(Result):
    """Result of `tokennorm.check`."""

    findings: Sequence[Finding]  #: those about masks with `masks` only
    errors: Sequence[str]  #: lines of the errors without those about masks
    warnings: Sequence[str]  #: lines of the warnings
    mask_errors: Sequence[str]  #: lines of the errors that matter to masks only
    splits: Mapping[str, Mapping[str, Any]]  #: source and counts per split; empty for a config
    sheets: Mapping[str, Path]  #: contact sheet per split; empty for a config, and where there are errors
    without_data: Sequence[str]  #: splits of a config whose data is not on this machine
    not_applied: Sequence[str]  #: codes of the rules about recipes that a config alone does not decide

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not any(one.severity == 'error' for one in self.findings)


@in_python
def check(
    data: str | Path,
    *,
    out: str | Path = 'work_dirs/check_dataset',
    num_images: int = 24,
    masks: bool = False,
    allow: Sequence[str] = (),
    strict: bool = False,
) -> CheckResult:
    """Checks a dataset before training, and draws its annotations into contact sheets; or checks a config.

    Errors that were found are in the result. They do not raise.

    Args:
        data: Folder, or the data.yaml of a YOLO dataset; or a config.
        out: Folder of the contact sheets.
        num_images: Images drawn per split.
        masks: Also report what would break training on masks.
        allow: Codes of rules to overrule.
        strict: Warnings are errors.

    Raises:
        UserError: for data that cannot be read at all.
    """
    data, out, allow = str(path_of('data', data)), path_of('--out', out), codes_of(allow)
    check_at_least_one('--num-images', num_images)
    found = Findings(allow, strict, masks)
    if is_config(data):
        return _check_config(data, allow, strict)
    check_data(data)
    import cv2

    from tokennorm.base.console import say
    from tokennorm.base.files import make_output_dir
    from tokennorm.datasets.coco.inspection import inspect_splits
    from tokennorm.datasets.contact_sheet import contact_sheet
    from tokennorm.datasets.discovery import find_splits

    with judging(found):
        splits = find_splits(data)
        for split in splits.values():
            say(f'{split.name}: {split.source}, images in {split.image_dir}')
        inspection = inspect_splits(splits)
    counts = {
        split.name: dict(
            source=split.source, **{key: len(split.content[key]) for key in ('images', 'annotations', 'categories')}
        )
        for split in splits.values()
    }
    sheets = {}
    if not found.of('error'):
        make_output_dir(out)
        for split in splits.values():
            sheets[split.name] = out / f'{split.name}.jpg'
            sheets[split.name].write_bytes(cv2.imencode('.jpg', contact_sheet(split, num_images))[1].tobytes())
    lines = [*inspection.lines(found)]
    lines += [f'{sheet}: images of {name} with their annotations' for name, sheet in sheets.items()]
    return _result(found, splits=counts, sheets=sheets, lines=lines)


def is_config(name: str) -> bool:
    """Returns whether a name is that of a config: a file of Python, or a name without a folder of data."""
    path = Path(name)
    if path.exists() or path.suffix in ('.yaml', '.yml', '.json'):
        return path.suffix == '.py'
    try:
        return bool(config_path(name))
    except FileNotFoundError:
        return '::' in name or path.suffix == '.py'


def _check_config(name: str, allow: Sequence[str], strict: bool) -> CheckResult:
    """Applies the rules about recipes to a config."""
    import_openmmlab()
    from tokennorm.engine.lint import lint

    found, absent, left_out = lint(name, tuple(allow), strict)
    lines = []
    if absent:
        lines.append(f'note: the data of {", ".join(absent)} is not on this machine')
    unjudged = f'{counted(len(left_out), "rule")} for data, training or a checkpoint not applied'
    lines.append(f'note: {unjudged}: {shorten(left_out, 2)}; --json has all')
    lines.append(found.text() or 'No problems found.')
    return _result(found, without_data=absent, not_applied=left_out, lines=lines)


def _result(found: Findings, **values: Any) -> CheckResult:
    return CheckResult(
        findings=tuple(one for one in found if found.counts(one)),
        errors=tuple(str(one) for one in found if one.severity == 'error' and one.rule.about != 'masks'),
        warnings=tuple(str(one) for one in found if one.severity == 'warning'),
        mask_errors=tuple(str(one) for one in found if one.severity == 'error' and one.rule.about == 'masks'),
        **dict(splits={}, sheets={}, without_data=(), not_applied=()) | values,
    )
