"""Generates a dataset once, completely or not at all."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def make_once(out: Path, settings: dict[str, Any], write: Callable[[Path], None]) -> None:
    """Generates the dataset of `settings` in folder `out`, unless it exists.

    It appears in one step, by a rename: an interrupted run leaves `out` unchanged. `write` fills a new folder.
    """
    side = settings['image_size']
    images = f'{settings["num_train"]} + {settings["num_val"]} images of {side} x {side} px'
    note = out / 'dataset.json'
    if note.is_file() and json.loads(note.read_text(encoding='ascii')) == settings:
        print(f'{out}: {images} of these settings exist already, nothing to do', flush=True)
        return
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise FileExistsError(f'{out} exists, and is not a dataset of these settings: remove it or name another folder')
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f'.{out.name}.', dir=out.parent) as scratch:
        fresh = Path(scratch) / 'fresh'
        write(fresh)
        (fresh / 'dataset.json').write_text(json.dumps(settings, indent=2) + '\n', encoding='ascii')
        fresh.rename(out)
    print(f'{out}: wrote {images}', flush=True)
