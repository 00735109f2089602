"""The installed packages: OpenMMLab's originals or their forks, and where mmcv's operators come from."""

import errno
import getpass
import importlib
import os
import shlex
import sys
from importlib import metadata

from tokennorm.base.fast_imports import fast_imports
from tokennorm.base.files import can_write, home_directory, temporary_directory
from tokennorm.base.process import alone, muted, without_warnings

FORKS = {
    'mmengine': 'onedl-mmengine',
    'mmcv': 'onedl-mmcv',
    'mmdet': 'onedl-mmdetection',
    'mmpretrain': 'onedl-mmpretrain',
}
PACKAGES = ('torch', 'torchvision', *FORKS, 'timm', 'einops')  # their names in an import
OPTIONAL = ('hotcoco', 'jinja2', 'onnx', 'onnxruntime', 'onnxscript', 'openvino', 'shtab', 'supervision', 'trackers')
MAKE_ENV = 'make env' if sys.prefix == sys.base_prefix else f'make env VENV={shlex.quote(sys.prefix)}'


class Fault(RuntimeError):
    """A fault of the environment, and the command that fixes it."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f'{problem}\nFix it with\n  {fix}')


def settle_user() -> str:
    """Sets variables that other packages need where the user has no name, or no home that can be written to.

    Containers are often run with such a user. PyTorch needs a name when it is imported; matplotlib and others keep
    files in a cache.

    Returns:
        Where the caches are, if not where they usually are.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError, ImportError):  # KeyError before Python 3.13; ImportError on Windows
        os.environ['USER'] = f'user-{os.getuid() if hasattr(os, "getuid") else os.getpid()}'
    home = home_directory()
    if 'XDG_CACHE_HOME' in os.environ or (home is not None and can_write(home / '.cache')):
        return ''
    folder = str(temporary_directory())
    os.environ['XDG_CACHE_HOME'] = folder  # of PyTorch and others
    os.environ.setdefault('MPLCONFIGDIR', folder)
    reason = 'there is no home directory' if home is None else f'the home directory {home} cannot be written to'
    return f'{reason}: caches are in {folder}; XDG_CACHE_HOME and MPLCONFIGDIR set another place'


_ACCESS = 'give this user the right to use it, or set HOME and TMPDIR to folders that can be written to'
_SPACE = 'free some space there, or set TMPDIR to a folder that has some'
_REMEDIES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _ACCESS),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _SPACE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), 'raise `ulimit -n`'),
    errno.ENOMEM: 'free some memory, or raise its limit (`ulimit -v`, or that of the container)',
}


def remedy_of_import(error: BaseException) -> str:
    """Returns what helps where not the packages but the machine ended an import; '' for other errors.

    To install the packages again would change nothing there.
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, MemoryError) or 'failed to map segment' in str(found):  # of a shared library
            return f'{_REMEDIES[errno.ENOMEM]}; the environment must not be on a file system mounted with noexec'
        if isinstance(found, OSError) and found.errno in _REMEDIES:
            return _REMEDIES[found.errno]
        found = found.__cause__ or found.__context__
    return ''


def version_of(distribution: str) -> str:
    """Returns '' if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ''


# Not find_spec('pip'): setuptools, which watches imports of pip, then fails in triton of torch 2.5.
PIP = f'{shlex.quote(sys.executable)} -m pip' if version_of('pip') else f'VIRTUAL_ENV={shlex.quote(sys.prefix)} uv pip'


def distributions_of(package: str) -> list[str]:
    """Returns the installed distributions of an imported package: a fork of it, the original, or wrongly both."""
    lite = [f'{package}-lite'] if package in ('mmcv', 'mmengine') else []
    names = [FORKS[package], package, *lite] if package in FORKS else [package]
    return [name for name in names if version_of(name)]


def install_all() -> str:
    """Returns the command that installs everything, OpenMMLab's packages from the family that is here."""
    if any(map(version_of, FORKS)):
        return f'{PIP} install ./projects/mmcv_ops ".[openmmlab,trial]"    # in a clone of TokenNorm'
    return MAKE_ENV


def check_mmcv_ops() -> str:
    """Returns the source of mmcv's operators, such as NMS. Raises `Fault` if they are missing or fit another torch."""
    try:
        with alone(), fast_imports():
            importlib.import_module('torch')
            module = importlib.import_module('mmcv._ext')
    except ImportError as error:
        if error.name != 'mmcv._ext':
            raise
        if isinstance(error, ModuleNotFoundError):
            fix = f'{PIP} install ./projects/mmcv_ops    # in a clone of TokenNorm'
            raise Fault('mmcv has no operators: mmcv-ops-torchvision is not installed', fix) from error
        mmcv = ' '.join(f'{name}=={version_of(name)}' for name in distributions_of('mmcv'))
        fix = f'{PIP} install --force-reinstall --no-deps --no-cache-dir {mmcv}    # compiles nothing'
        raise Fault(f"mmcv's operators do not fit torch {version_of('torch')}: {error}", fix) from error
    if str(getattr(module, '__file__', '')).endswith('.py'):
        return f'mmcv-ops-torchvision {version_of("mmcv-ops-torchvision")}'
    return 'compiled in mmcv'


def import_mmdet() -> None:
    """Imports mmdet without what it prints about packages that nothing here uses: faster_coco_eval and OneDL."""
    with muted(), without_warnings(), fast_imports():
        settle_user()
        importlib.import_module('mmdet.apis')
