"""A detector by its name: its config and its checkpoint. Neither torch nor OpenMMLab is imported."""

from pathlib import Path

from tokennorm.messages import UserError, did_you_mean
from tokennorm.published import PUBLISHED


def is_detector(name: str | Path) -> bool:
    """Returns whether a name is that of a folder or of a published detector, which need no second name."""
    return str(name) in PUBLISHED or (bool(str(name)) and Path(name).expanduser().is_dir())


def detector_files(name: str | Path, checkpoint: str | Path | None = None) -> tuple[str, str]:
    """Returns the config and the checkpoint of a detector.

    The name is a work directory, whose checkpoint is its best one, a published detector (`tokennorm weights`), or a
    config, which needs a checkpoint: a file, a URL or a work directory.
    """
    if str(name) in PUBLISHED:
        detector = PUBLISHED[str(name)]
        return detector.config, str(checkpoint or detector.url)
    if is_detector(name):
        folder = Path(name).expanduser()
        return str(config_of(folder)), str(checkpoint or folder)
    if checkpoint is None:
        raise UserError(
            f'{name} is neither a work directory nor a published detector{did_you_mean(name, PUBLISHED)}. '
            'After a config, name a checkpoint; before a checkpoint, name its config or work directory'
        )
    return str(name), str(checkpoint)


def config_of(work_dir: Path) -> Path:
    """The config that training wrote into a work directory: the newest one."""
    configs = sorted(work_dir.glob('*.py'), key=lambda path: path.stat().st_mtime_ns)
    if not configs:
        raise UserError(f'{work_dir} is not the work directory of a training run: it has no config (*.py)')
    return configs[-1]
