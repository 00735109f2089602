"""The folder that a program writes to, made before anything long begins."""

import os
from pathlib import Path


def make_output_folder(folder: str | Path) -> None:
    """Makes a folder, or sees that it is one that files can be written to.

    Raises:
        ValueError: with the reason, where it cannot be made or written to.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f'the folder {folder} cannot be made: {error.strerror}; name another one') from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f'nothing can be written to the folder {folder}; name another one')
