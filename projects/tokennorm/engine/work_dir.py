"""Lock of a work directory: one training run at a time."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from tokennorm.messages import UserError, is_first_process, user_errors
from tokennorm.output_dir import make_output_dir

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None

LOCK = '.training.lock'


@contextmanager
def locked_work_dir(work_dir: str | Path) -> Iterator[None]:
    """Inside, no other process trains in a work directory: a second one gets a `UserError` that names the first.

    The ranks of a run count as one. A kill ends the lock, too.
    """
    if fcntl is None or not is_first_process():
        yield
        return
    with user_errors(ValueError):
        make_output_dir(work_dir)
    with Path(work_dir, LOCK).open('a+') as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike that of flock, not inherited by data workers
        except (BlockingIOError, PermissionError):
            file.seek(0)
            raise UserError(
                f'{work_dir} is in use by {file.read().strip() or "another process"}. Wait for its end, or use '
                'another --work-dir'
            ) from None
        except OSError:  # a file system without locks
            pass
        file.truncate(0)
        file.write(f'process {os.getpid()} on {socket.gethostname()}, started {datetime.now():%Y-%m-%d %H:%M:%S}\n')
        file.flush()
        yield
