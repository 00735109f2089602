"""Generates a dataset once, completely or not at all."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def make_once(out: Path, settings: dict[str, Any], write: Callable[[Path], None], overwrite: bool = False) -> bool:
    """Generates the dataset of `settings` in folder `out`, unless it exists.

    It appears in one step, by a rename: an interrupted run leaves `out` unchanged.

    Args:
        out: Folder of the dataset; `dataset.json` in it will hold `settings`.
        settings: Everything that its content depends on.
        write: Writes the dataset into a folder.
        overwrite: Replace a dataset of other settings. A folder that is no generated dataset is never replaced.

    Returns:
        Whether it was made now.
    """
    try:
        if _exists(out, settings):
            return False
    except FileExistsError:
        if not (overwrite and (out / 'dataset.json').is_file()):
            raise
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f'.{out.name}.', dir=out.parent) as scratch:
        fresh = Path(scratch) / 'fresh'
        write(fresh)
        (fresh / 'dataset.json').write_text(json.dumps(settings, indent=2) + '\n', encoding='ascii')
        if overwrite and out.exists():
            out.rename(Path(scratch) / 'replaced')
        try:
            fresh.rename(out)
        except OSError:  # another process was faster
            if not _exists(out, settings):
                raise
    return True


def _exists(out: Path, settings: dict[str, Any]) -> bool:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    try:
        found = json.loads((out / 'dataset.json').read_text(encoding='ascii'))
    except (OSError, ValueError):
        raise FileExistsError(f'{out} exists and is no shapes dataset: choose another folder') from None
    if found != settings:
        raise FileExistsError(
            f'{out} holds a dataset of other settings: {found}, wanted {settings}. '
            'Choose another folder, or replace it with --overwrite (overwrite=True).'
        )
    return True
