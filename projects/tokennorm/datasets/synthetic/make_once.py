"""Generates a dataset once, completely or not at all."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def make_once(out: Path, settings: dict[str, Any], write: Callable[[Path], None], overwrite: bool = False) -> None:
    """Generates the dataset of `settings` in folder `out`, unless it exists.

    It appears in one step, by a rename: an interrupted run leaves `out` unchanged.
    """
    try:
        if _exists(out, settings):
            print(f'{out}: {_images(settings)} of these settings exist already, nothing to do', flush=True)
            return
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
    print(f'{out}: wrote {_images(settings)}', flush=True)


def _images(settings: dict[str, Any]) -> str:
    side = settings['image_size']
    return f'{settings["num_train"]} + {settings["num_val"]} images of {side} x {side} px'


def _exists(out: Path, settings: dict[str, Any]) -> bool:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    try:
        found = json.loads((out / 'dataset.json').read_text(encoding='ascii'))
    except (OSError, ValueError):
        raise FileExistsError(f'{out} exists and is not a shapes dataset: choose another folder') from None
    if found != settings:
        raise FileExistsError(
            f'{out} holds a dataset of other settings: {found}, wanted {settings}. '
            'Choose another folder, or replace it with --overwrite (overwrite=True).'
        )
    return True
