"""The checkpoints that a training run leaves in its work directory."""

import re
from pathlib import Path

NOTE = 'last_checkpoint'  # mmengine writes the latest checkpoint's path into it


def checkpoints_in(folder: Path) -> list[Path]:
    """Returns the checkpoints of epochs and iterations, the latest first.

    The latest is the one that `last_checkpoint` names, unless a kill came between a newer file and the note. The
    directory may have been moved: a file of the noted name in it takes precedence over the noted path.
    """
    paths = {path for path in folder.glob('*.pth') if re.search(r'^(?!best_).*_\d+$', path.stem) and path.is_file()}
    note, named, written = folder / NOTE, None, 0
    if note.is_file() and (content := note.read_text().strip()):
        inside = folder / Path(content).name
        named = inside if inside.is_file() else Path(content)
        if named.is_file():
            paths.add(named)
            written = note.stat().st_mtime_ns

    def rank(path: Path) -> tuple[bool, bool, int, int]:
        time, number = path.stat().st_mtime_ns, re.sub(r'.*_(?=\d+$)', '', path.stem)
        return time > written, path == named, time, int(number) if number.isdigit() else 0

    return sorted(paths, key=rank, reverse=True)


def newest_checkpoint(folder: Path) -> Path | None:
    """Returns the latest checkpoint of a work directory, or None."""
    return next(iter(checkpoints_in(folder)), None)


def best_checkpoint(folder: Path) -> Path:
    """Returns the best checkpoint of the latest run in a work directory, or the latest one where none was selected."""
    best = max(folder.glob('best_*.pth'), key=lambda path: path.stat().st_mtime_ns, default=None)
    if (found := best or newest_checkpoint(folder)) is None:
        raise FileNotFoundError(f'{folder} has no checkpoint: no best_*.pth, {NOTE}, epoch_N.pth or iter_N.pth')
    return found
