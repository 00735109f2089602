"""Output folders, created and tried before anything long begins."""

import tempfile
from pathlib import Path

LEAST_SPACE = 2**20  # bytes; a config and the first lines of a log


def check_output_file(path: str | Path) -> None:
    """Checks that a file can be written, and creates its folder."""
    if Path(path).is_dir():
        raise ValueError(f'{path} is a folder; name a file')
    make_output_dir(Path(path).parent)


def make_output_dir(folder: str | Path) -> None:
    """Creates a folder, and checks that files can be written to it."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f'the folder {folder} cannot be created: {error.strerror}; choose another one') from None
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(LEAST_SPACE))
    except OSError as error:  # such as a full disk
        raise ValueError(f'cannot write to the folder {folder}: {error.strerror}; choose another one') from None
