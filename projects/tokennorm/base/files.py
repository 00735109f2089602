"""Output files and folders, tried before anything long begins and written in one step; the cache directory."""

import json
import os
import re
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokennorm.base.messages import UserError

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


def as_json(value: Any, **options: Any) -> str:
    """Returns a value as JSON, which has no NaN and no infinity: these are null.

    The options are those of `json.dumps`.
    """
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        written = json.loads(json.dumps(value, **options), parse_constant=lambda _: None)
        return json.dumps(written, **options)


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
    """Returns `$TOKENNORM_CACHE`, else `$XDG_CACHE_HOME/tokennorm`, else `~/.cache/tokennorm`. It may not exist yet.

    Without a home that can be written to, it is in `temporary_directory`.
    """
    if named := os.environ.get('TOKENNORM_CACHE'):
        return Path(in_home(named))
    cache = os.environ.get('XDG_CACHE_HOME', '')
    if os.path.isabs(cache):
        return Path(cache, 'tokennorm')
    home = home_directory()
    folder = home and home / '.cache' / 'tokennorm'
    return folder if folder and can_write(folder) else temporary_directory()


def home_directory() -> Path | None:
    """Returns the user's home; None if neither HOME nor the system names one, as for the user id of a container."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def can_write(folder: Path) -> bool:
    """Returns whether files can be written to a folder, or whether it can be made."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def temporary_directory() -> Path:
    """Returns a folder of this user's in the system's temporary one. Nobody else can write to it."""
    number = os.getuid() if hasattr(os, 'getuid') else 0
    folder = Path(tempfile.gettempdir(), f'tokennorm-{number}')
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or (
        hasattr(os, 'getuid') and (status.st_uid != number or status.st_mode & 0o022)
    ):
        raise UserError(f'{folder} is not a folder of yours only; set TOKENNORM_CACHE to one that can be written to')
    return folder
