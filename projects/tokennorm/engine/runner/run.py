"""Training and evaluation whose errors end with one line."""

import errno

from mmengine.runner import Runner

from tokennorm.checkpoints import CheckpointError
from tokennorm.checkpoints.check_init import how_to_start
from tokennorm.engine.hooks.data_errors import DataError
from tokennorm.engine.hooks.non_finite import NonFiniteError
from tokennorm.engine.runner.build_errors import build_errors
from tokennorm.messages import exit_on

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def train(runner: Runner, how_to_continue: str) -> None:
    """Trains. An interruption ends with the place of the checkpoints and how to continue."""
    try:
        with build_errors():
            runner.train()
    except (CheckpointError, FileNotFoundError, ConnectionError) as error:
        start = runner.cfg.model.backbone.get('init_cfg') or {}
        raise SystemExit(f'error: {error}\n{how_to_start(start.get("checkpoint", ""))}') from None
    except (DataError, NonFiniteError) as error:
        raise SystemExit(f'error: {error}') from None
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        raise SystemExit(
            f'error: {error}. The disk or the quota is full; earlier checkpoints in {runner.work_dir} are '
            f'unchanged. Free some space, then {how_to_continue}'
        ) from None
    except KeyboardInterrupt:
        raise SystemExit(f'\nInterrupted. Checkpoints so far are in {runner.work_dir}; {how_to_continue}') from None


def test(runner: Runner) -> None:
    """Evaluates. A file that cannot be read ends with its name."""
    with exit_on(DataError), build_errors():
        runner.test()
