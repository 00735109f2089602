"""Atomic writes: a temporary file, then a rename."""

import os
import secrets
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend

TEMPORARY = '.tmp'


def write_atomically(path: str | Path, content: bytes) -> None:
    """Writes a file, or replaces one. Until all of it is on the disk a file of that name stays what it was.

    An `OSError` has the operating system's number, and leaves no part of the file.
    """
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


class AtomicBackend(LocalBackend):
    """mmengine's files on a local disk (`backend_args=dict(backend='tokennorm.atomic', outdated=[])`).

    `put` writes in one step, and then removes the files that `remove` named since the last one, in the same directory
    only: a checkpoint that was resumed from may name files of the directory that this one is a copy of.
    """

    def __init__(self, outdated: list[str]) -> None:
        self.outdated = outdated  # one list for a run, since mmengine makes new backends

    def put(self, obj: bytes, filepath: str | Path) -> None:
        write_atomically(filepath, obj)
        while self.outdated:
            Path(filepath).with_name(Path(self.outdated.pop()).name).unlink(missing_ok=True)

    def remove(self, filepath: str | Path) -> None:
        self.outdated.append(str(filepath))

    rmtree = remove  # checkpoints are files


register_backend('tokennorm.atomic', AtomicBackend, force=True)
