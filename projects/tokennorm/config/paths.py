"""Paths of configs: files of the user, configs of this package, and configs of other OpenMMLab packages."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tokennorm.base.messages import did_you_mean

CONFIGS = (Path(__file__).parents[1] / '.mim' / 'configs').resolve()


def config(name: str | Path) -> str:
    """Returns the path of a config file.

    >>> _base_ = __import__('tokennorm').config('pvt/retinanet_pvt-t_fpn_1x_coco')  # in a config of yours

    Args:
        name: One of

            - a path;
            - a config of this package, with or without its folder, `.py` or the prefix `tokennorm::`;
            - a config of another OpenMMLab package, such as `mmdet::retinanet/retinanet_r50_fpn_1x_coco.py`.

    Raises:
        FileNotFoundError: if there is no such config. The message has the nearest name.
    """
    name = str(name)
    if '::' not in name and Path(name).is_file():
        return name
    package, _, rest = name.rpartition('::')
    folder = CONFIGS
    if package not in ('', 'tokennorm'):
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise FileNotFoundError(f'config {name} not found: the package {package} is not installed')
        folder = (Path(spec.origin).parent / '.mim' / 'configs').resolve()
    path = _find(folder, rest.removeprefix('configs/').removesuffix('.py'))
    if path is None:
        names = [path.relative_to(folder).with_suffix('').as_posix() for path in config_files(folder)]
        known = names if '/' in rest else [name.rpartition('/')[2] for name in names]
        meant = did_you_mean(
            name.removesuffix('.py'), [f'{package}::{config}' if package else config for config in known]
        )
        meant = ' (is it a second value of the option before it, which takes one?)' if str(name).isdigit() else meant
        raise FileNotFoundError(f'config {name} not found{meant}; `tokennorm configs` lists those of this package')
    return str(path)


def is_installed(path: str | Path) -> bool:
    """Returns whether a file is a config of this package, or of an installed one of OpenMMLab."""
    return any(Path(path).resolve().is_relative_to(folder) for folder in _folders())


@cache
def _folders() -> tuple[Path, ...]:
    from mmengine.config.utils import MODULE2PACKAGE  # it takes a second

    specs = filter(None, map(find_spec, MODULE2PACKAGE))
    packages = [Path(spec.origin).parent for spec in specs if spec.origin]
    return CONFIGS, *(path.resolve() for package in packages for path in (package, package / '.mim' / 'configs'))


def config_files(folder: Path = CONFIGS) -> list[Path]:
    """Returns the files of all whole configs below a folder of configs."""
    return [path for path in sorted(folder.glob('*/**/*.py')) if path.relative_to(folder).parts[0] != '_base_']


def _find(folder: Path, name: str) -> Path | None:
    """The file of a config with its folder, or of one whose name is unique."""
    exact = folder / f'{name}.py'
    if exact.is_file():
        return exact
    matches = [path for path in config_files(folder) if path.stem == name]
    return matches[0] if len(matches) == 1 else None
