"""A lock on a work directory: two training runs would overwrite each other's checkpoints."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tokennorm.config.detectors import LOCK
from tokennorm.files import make_output_dir
from tokennorm.messages import UserError
from tokennorm.ranks import is_first_process

PATIENCE = 10  # seconds: data workers of a killed run hold its lock until they notice its end
_NO_LOCKS = errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS  # a file system without locks, such as some of networks


@contextmanager
def locked_work_dir(work_dir: str | Path) -> Iterator[None]:
    """Holds an exclusive lock on a work directory. Ranks of one run share it. The OS releases it with the process."""
    if not is_first_process():
        yield
        return
    make_output_dir(work_dir)
    lock = FileLock(Path(work_dir, LOCK), timeout=PATIENCE)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f'{work_dir} is in use by another training run. Wait for its end, or use another --out'
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()
