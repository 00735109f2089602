"""A lock on a work directory: two training runs would overwrite each other's checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokennorm.files import make_output_dir
from tokennorm.messages import UserError
from tokennorm.ranks import is_first_process

LOCK = '.training.lock'


@contextmanager
def locked_work_dir(work_dir: str | Path) -> Iterator[None]:
    """Holds an exclusive lock on a work directory. Ranks of one run share it. The OS releases it with the process."""
    if not is_first_process():
        yield
        return
    make_output_dir(work_dir)
    with Path(work_dir, LOCK).open('a', encoding='utf-8') as file:
        try:
            import fcntl

            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike that of flock, not inherited by data workers
        except (BlockingIOError, PermissionError):
            raise UserError(
                f'{work_dir} is in use by another training run. Wait for its end, or use another --out'
            ) from None
        except (ImportError, OSError):  # Windows, or a file system without locks
            pass
        yield
