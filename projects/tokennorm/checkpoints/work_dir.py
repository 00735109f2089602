"""The checkpoints that a training run leaves in its work directory."""

import re
from pathlib import Path

NOTE = 'last_checkpoint'  # mmengine writes the latest checkpoint's path into it


def newest_checkpoint(folder: Path) -> Path | None:
    """Returns the checkpoint that `last_checkpoint` names, else the latest of epochs and iterations, or None.

    The directory may have been moved: a file of the noted name in it takes precedence over the noted path.
    """
    note = folder / NOTE
    if note.is_file() and (named := note.read_text().strip()):
        for path in (folder / Path(named).name, Path(named)):
            if path.is_file():
                return path
    found = {path: re.fullmatch(r'(?!best_).*_(\d+)', path.stem) for path in folder.glob('*.pth')}
    steps = {path: int(match[1]) for path, match in found.items() if match}
    return max(steps, key=lambda path: (path.stat().st_mtime_ns, steps[path]), default=None)


def best_checkpoint(folder: Path) -> Path:
    """Returns the best checkpoint of the latest run in a work directory, or the latest one where none was selected."""
    best = max(folder.glob('best_*.pth'), key=lambda path: path.stat().st_mtime_ns, default=None)
    if (found := best or newest_checkpoint(folder)) is None:
        raise FileNotFoundError(f'{folder} has no checkpoint: no best_*.pth, {NOTE}, epoch_N.pth or iter_N.pth')
    return found
