"""A detector by its name: its config and its checkpoint. Neither torch nor OpenMMLab is imported."""

from pathlib import Path

from tokennorm.messages import UserError, did_you_mean
from tokennorm.published import PUBLISHED


def is_detector(name: str | Path) -> bool:
    """Returns whether a name is that of a folder, a checkpoint or a published detector, which need no second name."""
    path = Path(name).expanduser()
    return str(name) in PUBLISHED or (bool(str(name)) and path.is_dir()) or is_checkpoint(name)


def is_checkpoint(name: str | Path) -> bool:
    """Returns whether a name is that of a checkpoint's file or URL, by its suffix."""
    path = Path(name).expanduser()
    return path.suffix in ('.pth', '.safetensors') and (path.is_file() or str(name).startswith(('http://', 'https://')))


def detector_files(name: str | Path, checkpoint: str | Path | None = None) -> tuple[str, str]:
    """Returns the config and the checkpoint of a detector.

    The name is a work directory, whose checkpoint is its best one, a published detector (`tokennorm weights`), or a
    config, which needs a checkpoint: a file, a URL or a work directory. The config of a checkpoint's file is next
    to it, in a work directory, or inside; the file is then returned twice.
    """
    if str(name) in PUBLISHED:
        detector = PUBLISHED[str(name)]
        return detector.config, str(checkpoint or detector.url)
    path = Path(name).expanduser()
    if is_checkpoint(name) and checkpoint in (None, str(name)):
        source = str(path if path.is_file() else name)
        has_config = any(path.parent.glob('*.py')) and any(path.parent.glob('*/vis_data'))
        return str(config_of(path.parent) if has_config else source), source
    if str(name) and path.is_dir():
        return str(config_of(path)), str(checkpoint or path)
    if checkpoint is None:
        folders = [str(one) for one in Path(name).parent.glob('*') if one.is_dir()]
        raise UserError(
            f'{name} is neither a work directory nor a published detector{did_you_mean(name, [*PUBLISHED, *folders])}. '
            'After a config, name a checkpoint; before a checkpoint, name its config or work directory'
        )
    return str(name), str(checkpoint)


def config_of(work_dir: Path) -> Path:
    """The config that training wrote into a work directory: the newest one."""
    configs = sorted(work_dir.glob('*.py'), key=lambda path: path.stat().st_mtime_ns)
    if not configs:
        raise UserError(f'{work_dir} is not the work directory of a training run: it has no config (*.py)')
    return configs[-1]
