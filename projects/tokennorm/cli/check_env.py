"""Prints versions, and tests what often breaks in an environment with mmcv: `python -m tokennorm.cli.check_env`.

It stops at the first failed test and prints the command that fixes it. Exit status: 0 when all is well, else 1.
"""

import importlib
import platform
import shutil
import sys
from importlib.util import find_spec

from tokennorm.base.console import say
from tokennorm.base.environment import (
    FORKS,
    MAKE_ENV,
    PACKAGES,
    PIP,
    Fault,
    check_mmcv_ops,
    distributions_of,
    install_all,
    remedy_of_import,
    settle_user,
    version_of,
)

OPENCV = ('opencv-contrib-python-headless', 'opencv-python-headless', 'opencv-python')  # the first two need no libGL


def check_packages() -> str:
    """Checks that all packages are installed, OpenMMLab's of one family, and returns its name."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise Fault(f'not installed: {", ".join(missing)}', install_all())
    found = [name for package in FORKS for name in distributions_of(package)]
    forks = [name for name in found if name in FORKS.values()]
    if 0 < len(forks) < len(found) or len(found) > len(FORKS):
        originals = [name for name in found if name not in forks and f'{name}-lite' not in found]
        kept = max(forks, originals, key=len)
        install = f'{PIP} install --no-deps {" ".join(f"{name}=={version_of(name)}" for name in kept)}'
        problem = f'installed into the same folders: {", ".join(found)}'
        raise Fault(problem, f'{PIP} uninstall -y {" ".join(found)} && {install}')
    return 'forks of OpenMMLab (onedl-...)' if forks else 'originals of OpenMMLab'


def check_imports() -> str:
    """Checks that the versions accept each other: mmdet and mmpretrain check mmcv's and mmengine's on import."""
    for name in ('cv2', *PACKAGES):
        try:
            _ = importlib.import_module(name).__version__  # a folder without the package can be imported, too
        except Exception as error:  # whatever a package does when it is imported
            fix = remedy_of_import(error) or install_all()
            if name == 'cv2' and fix == install_all():  # opencv-python, which was installed last, needs libGL
                version = next(filter(None, map(version_of, OPENCV)), '')
                fix = f'{PIP} install --force-reinstall --no-deps {OPENCV[0]}{version and f"=={version}"}'
            raise Fault(f'import {name} fails: {type(error).__name__}: {error}', fix) from error
    return 'their versions accept each other'


def check_gpu() -> str:
    """Checks that torch and mmcv's operators have code for the GPU, and returns its name."""
    import torch
    from mmcv.ops import nms

    if not (torch.cuda.is_available() or shutil.which('nvidia-smi')):
        return 'not found, everything runs on the CPU'
    try:
        boxes = torch.ones(1, 4, device='cuda')
        nms(boxes, boxes[:, 0], 0.5)[0].cpu()  # waits for the GPU
    except (AssertionError, RuntimeError) as error:  # torch for CPUs asserts that it was compiled with CUDA
        # torch for older GPUs; its torchvision has the operators
        raise Fault(_first_line(error), f'{MAKE_ENV} TORCH_INDEX=https://download.pytorch.org/whl/cu126') from error
    return f'{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}'


def check_dtn_kernel() -> str:
    """Returns the file of DTN's optional CPU kernel. Where the wheel has none, a C++ compiler builds it here."""
    from tokennorm.ops.cpu.kernel import library_path

    try:
        return str(library_path())
    except Exception as error:  # the same as the dispatch of DTN does
        return f'none, the slower eager form runs ({_first_line(error)})'


CHECKS = (check_packages, check_imports, check_mmcv_ops, check_gpu, check_dtn_kernel)


def main() -> int:
    """Prints versions and checks, and returns the exit status."""
    say(f'{"python":<32}{platform.python_version()}, {sys.executable}')
    if places := settle_user():
        say(places)
    installed = [name for package in PACKAGES for name in distributions_of(package) or [package]]
    for name in (*installed, 'mmcv-ops-torchvision', 'numpy', *filter(version_of, OPENCV)):
        say(f'{name:<32}{version_of(name) or "not installed"}')
    say()
    for check in CHECKS:
        name = check.__name__.removeprefix('check_').replace('_', ' ')
        try:
            say(f'ok    {name}: {check()}')
        except Fault as fault:
            say(f'FAIL  {name}: {fault}')
            return 1
    return 0


def _first_line(error: Exception) -> str:
    return str(error).strip().partition('\n')[0]


if __name__ == '__main__':
    sys.exit(main())
