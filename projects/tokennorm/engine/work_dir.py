"""A work directory: one training run at a time, whose checkpoints are written in one step."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend

from tokennorm.files import make_output_dir, write_atomically
from tokennorm.messages import UserError, is_first_process, user_errors

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None

LOCK = '.training.lock'
ATOMIC = 'tokennorm.atomic'  # mmengine's name of the file backend


@contextmanager
def locked_work_dir(work_dir: str | Path) -> Iterator[None]:
    """Inside, no other process trains in a work directory. Ranks of a run count as one. A kill ends the lock, too."""
    if fcntl is None or not is_first_process():
        yield
        return
    with user_errors(ValueError):
        make_output_dir(work_dir)
    with Path(work_dir, LOCK).open('a') as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike that of flock, not inherited by data workers
        except (BlockingIOError, PermissionError):
            raise UserError(
                f'{work_dir} is in use by another training run. Wait for its end, or use another --work-dir'
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


class AtomicBackend(LocalBackend):
    """mmengine's files on a local disk (`backend_args=dict(backend=ATOMIC, outdated=[])`).

    `put` writes in one step, and then removes the files that `remove` named since the last one, in the same directory
    only: a checkpoint that was resumed from may name files of the directory that this one is a copy of.
    """

    def __init__(self, outdated: list[str]) -> None:
        self.outdated = outdated  # one list for a run, since mmengine makes new backends

    def put(self, obj: bytes, filepath: str | Path) -> None:
        write_atomically(filepath, obj)
        for name in {Path(path).name for path in self.outdated} - {Path(filepath).name}:
            Path(filepath).with_name(name).unlink(missing_ok=True)
        self.outdated.clear()

    def remove(self, filepath: str | Path) -> None:
        self.outdated.append(str(filepath))

    rmtree = remove  # checkpoints are files


register_backend(ATOMIC, AtomicBackend, force=True)
