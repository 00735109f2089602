"""The installed packages: their versions, and mmcv's compiled ops, which pip leaves out in an isolated build."""

import importlib
import os
import re
import sys
from importlib import metadata

PACKAGES = {  # what is imported: the distribution that brings it
    'torch': 'torch',
    'torchvision': 'torchvision',
    'mmengine': 'onedl-mmengine',
    'mmcv': 'onedl-mmcv',
    'mmdet': 'onedl-mmdetection',
    'mmpretrain': 'onedl-mmpretrain',
    'timm': 'timm',
    'einops': 'einops',
}
PIP = f'{sys.executable} -m pip'
MAKE_ENV = 'make env' if sys.prefix == sys.base_prefix else f'make env VENV={sys.prefix}'


class Fault(RuntimeError):
    """A fault of the environment, and the command that fixes it."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f'{problem}\nFix it with\n  {fix}')


def available_cores() -> int:
    """Returns the number of logical cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def version_of(distribution: str) -> str:
    """Returns '' if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ''


def rebuild_mmcv(variables: str = '') -> str:
    """Returns the command that compiles mmcv for the installed torch, and replaces an older wheel in pip's cache."""
    path = f'PATH={os.path.dirname(sys.executable)}:$PATH {variables}'.strip()  # ninja, which compiles in parallel
    tools = f"{PIP} install 'setuptools<82' wheel ninja psutil"
    install = f'{PIP} install --force-reinstall --no-deps --no-build-isolation --no-binary onedl-mmcv onedl-mmcv'
    version = version_of('onedl-mmcv')
    return f'{tools}; {PIP} cache remove onedl_mmcv; {path} {install}{version and f"=={version}"}'


def check_mmcv_ops() -> str:
    """Raises `Fault` unless mmcv's compiled ops, such as NMS, exist and fit the installed torch."""
    try:
        importlib.import_module('torch')
        importlib.import_module('mmcv._ext')
    except ImportError as error:
        if error.name == 'mmcv._ext' and isinstance(error, ModuleNotFoundError):
            problem = 'mmcv was installed without its compiled ops (pip builds it so in isolation)'
            raise Fault(problem, rebuild_mmcv()) from error
        if re.search(r'undefined symbol|lib(c10|torch)\w*\.so|libcudart', str(error)):
            problem = f'mmcv was compiled for another torch than the installed {version_of("torch")} ({error})'
            raise Fault(problem, rebuild_mmcv()) from error
        raise Fault(f"mmcv's compiled ops cannot be tested: {error}", MAKE_ENV) from error
    return 'fit the installed torch'
