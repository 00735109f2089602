"""The folder that a program writes to, made before anything long begins."""

import tempfile
from pathlib import Path

LEAST_SPACE = 2**20  # bytes; a config and the first lines of a log


def make_output_dir(folder: str | Path) -> None:
    """Makes a folder, or sees that it is one that files can be written to.

    Raises:
        ValueError: with the reason, where it cannot be made or written to.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f'the folder {folder} cannot be made: {error.strerror}; name another one') from None
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(LEAST_SPACE))
    except OSError as error:  # a full disk, for one
        raise ValueError(f'nothing can be written to the folder {folder}: {error.strerror}; name another one') from None
