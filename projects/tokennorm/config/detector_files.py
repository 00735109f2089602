"""A detector by its name: its config and its checkpoint. Neither torch nor OpenMMLab is imported."""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokennorm.base.files import in_home
from tokennorm.base.messages import UserError, did_you_mean
from tokennorm.base.published import PUBLISHED

LOCK = '.training.lock'
OF_RUNS = ('last_checkpoint', LOCK)  # files that a training run leaves in its directory


@dataclass(frozen=True)
class Named:
    """A detector by its files, with the entries that are set in its config."""

    config: str
    checkpoint: str  #: equal to the config where that is inside
    cfg_options: dict[str, Any]


def is_detector(name: str | Path) -> bool:
    """Returns whether a name is that of a folder, a checkpoint or a published detector, which need no second name."""
    path = Path(in_home(str(name)))
    return str(name) in PUBLISHED or (bool(str(name)) and path.is_dir()) or is_checkpoint(name)


def is_checkpoint(name: str | Path) -> bool:
    """Returns whether a name is that of a checkpoint's file or URL, by its suffix."""
    path = Path(in_home(str(name)))
    return path.suffix in ('.pth', '.safetensors') and (path.is_file() or str(name).startswith(('http://', 'https://')))


def detector_files(name: str | Path, checkpoint: str | Path | None = None) -> tuple[str, str]:
    """Returns the config and the checkpoint of a detector.

    The name is a work directory, whose checkpoint is its best one, a published detector (`tokennorm weights`), or a
    config, which needs a checkpoint: a file, a URL or a work directory. The config of a checkpoint's file is next
    to it, in a work directory, or inside; the file is then returned twice.
    """
    if str(name) in PUBLISHED:
        detector = PUBLISHED[str(name)]
        return detector.config, str(checkpoint or detector.url)
    path = Path(in_home(str(name)))
    if is_checkpoint(name) and checkpoint in (None, str(name)):
        source = str(path if path.is_file() else name)
        configs = written_configs(path.parent)
        return str(configs[-1] if configs else source), source
    if str(name) and path.is_dir():
        return str(config_of(path)), str(checkpoint or path)
    if checkpoint is None:
        folders = [str(path) for path in Path(name).parent.glob('*') if path.is_dir()]
        raise UserError(
            f'{name} is neither a work directory nor a published detector{did_you_mean(name, [*PUBLISHED, *folders])}. '
            'After a config, name a checkpoint; before a checkpoint, name its config or work directory'
        )
    return str(name), str(checkpoint)


def config_of(work_dir: Path) -> Path:
    """Returns the config that training wrote into a work directory, the newest one."""
    configs = written_configs(work_dir)
    if not configs:
        raise UserError(
            f'{work_dir} has no config of a training run: name the config, and then the checkpoint. '
            'A file *.py that training did not write is not run'
        )
    return configs[-1]


def written_configs(work_dir: Path) -> list[Path]:
    """Returns the configs that training wrote into a directory, the newest last.

    Such a file assigns values, `work_dir` among them, and nothing else, and has no base: scripts and configs of the
    user may be beside it.
    """
    configs = [path for path in work_dir.glob('*.py') if _is_written(path)]
    return sorted(configs, key=lambda path: path.stat().st_mtime_ns)


def work_dir_of(config: str | Path | None) -> Path | None:
    """Returns the work directory in which a config lies that training wrote there, or None.

    The config has the directory's path of that day; the run may have been copied or moved since.
    """
    path = Path(config or '')
    is_run = any((path.parent / name).is_file() for name in OF_RUNS)
    return path.parent if config and is_run and _is_written(path) else None


def _is_written(path: Path) -> bool:
    try:
        statements = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    names = [getattr(line.targets[0], 'id', None) for line in statements if isinstance(line, ast.Assign)]
    values = (node for line in statements for node in ast.walk(getattr(line, 'value', line)))
    calls = {ast.unparse(node.func) for node in values if isinstance(node, ast.Call)}
    is_whole = len(names) == len(statements) and 'work_dir' in names and '_base_' not in names
    return is_whole and calls <= {'dict', 'set', 'frozenset'}
