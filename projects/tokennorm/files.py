"""Output files and folders, tried before anything long begins and written in one step; the cache directory."""

import os
import re
import secrets
import tempfile
from pathlib import Path

from tokennorm.messages import UserError

TEMPORARY = '.tmp'
_HOME = re.compile(r'^(-?-?[\w.-]+=)?(~[\w.-]*)(?=/|\\|$)')  # also after `--out=`, where no shell replaces it
LEAST_SPACE = 2**20  # bytes; a config and the first lines of a log


def in_home(argument: str) -> str:
    """Replaces `~` or `~user` at the beginning of a path, or of the path in `--out=~/x` and `key=~/x`, by the home."""
    return _HOME.sub(lambda found: (found[1] or '') + os.path.expanduser(found[2]), argument)


def write_atomically(path: str | Path, content: bytes) -> None:
    """Writes a file, or replaces one. Until all of it is on the disk a file of that name stays what it was."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f'{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}')  # of this call only
    try:
        with temporary.open('wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(
            error.errno, f'{path}, {len(content) / 2**20:.1f} MiB, could not be written: {error.strerror}'
        ) from error
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name
    finally:
        os.close(folder)


def check_output_file(path: str | Path) -> None:
    """Creates the folder of a file; raises `UserError` if the file cannot be written."""
    if Path(path).is_dir():
        raise UserError(f'{path} is a folder; name a file')
    make_output_dir(Path(path).parent)


def make_output_dir(folder: str | Path) -> None:
    """Creates a folder; raises `UserError` if files cannot be written to it."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(LEAST_SPACE))
    except OSError as error:  # such as a full disk
        raise UserError(f'cannot write to the folder {folder}: {error.strerror}; choose another one') from None


def cache_directory() -> Path:
    """Returns `$TOKENNORM_CACHE`, else `$XDG_CACHE_HOME/tokennorm`, else `~/.cache/tokennorm`. It may not exist yet."""
    if named := os.environ.get('TOKENNORM_CACHE'):
        return Path(in_home(named))
    cache = os.environ.get('XDG_CACHE_HOME', '')
    return Path(cache if os.path.isabs(cache) else Path.home() / '.cache', 'tokennorm')
