"""Prints versions, and tests what often breaks in an environment with mmcv: `python -m tokennorm.cli.check_env`.

It stops at the first failed test and prints the command that fixes it. Exit status: 0 when all is well, else 1.
"""

import importlib
import platform
import shutil
import sys
from importlib.util import find_spec

from tokennorm.environment import MAKE_ENV, PACKAGES, PIP, Fault, check_mmcv_ops, rebuild_mmcv, version_of

FORK_OF = {'mmcv-full': 'onedl-mmcv', 'mmcv-lite': 'onedl-mmcv', 'mmengine-lite': 'onedl-mmengine'}
FORK_OF |= {name: PACKAGES[name] for name in ('mmengine', 'mmcv', 'mmdet', 'mmpretrain')}


def check_packages() -> str:
    """Checks that all packages are installed, and that none is installed besides its fork, into the same folder."""
    if missing := [PACKAGES[name] for name in PACKAGES if find_spec(name) is None]:
        raise Fault(f'not installed: {", ".join(missing)}', MAKE_ENV)
    if twice := {name: fork for name, fork in FORK_OF.items() if version_of(name) and version_of(fork)}:
        forks = ' '.join(f'{fork}=={version_of(fork)}' for fork in sorted(set(twice.values())))
        again = f'{PIP} install --force-reinstall --no-deps --no-build-isolation {forks}'
        problem = f'installed twice, as original and as fork: {", ".join(twice)}'
        raise Fault(problem, f'{PIP} uninstall -y {" ".join(twice)} && {again}')
    return 'installed'


def check_imports() -> str:
    """Checks that the versions accept each other: mmdet and mmpretrain check mmcv's and mmengine's on import."""
    for name in ('cv2', *PACKAGES):
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a package does when it is imported
            raise Fault(f'import {name} fails: {type(error).__name__}: {error}', MAKE_ENV) from error
    return 'their versions accept each other'


def check_gpu() -> str:
    """Checks that torch and mmcv's ops have code for the GPU, and returns its name."""
    import torch
    from mmcv.ops import nms

    if not (torch.cuda.is_available() or shutil.which('nvidia-smi')):
        return 'there is none, everything runs on the CPU'
    fix = f'{MAKE_ENV} TORCH_INDEX=https://download.pytorch.org/whl/cu126'  # of torch, for older GPUs
    try:
        boxes = torch.ones(1, 4, device='cuda')
        boxes.cpu()  # waits for the GPU
        fix = rebuild_mmcv('FORCE_CUDA=1')
        nms(boxes, boxes[:, 0], 0.5)[0].cpu()
    except (AssertionError, RuntimeError) as error:  # torch for CPUs asserts that it was compiled with CUDA
        raise Fault(_first_line(error), fix) from error
    return f'{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}'


def check_dtn_kernel() -> str:
    """Compiles DTN's CPU kernel, so that no training run waits for it. Without a compiler the eager form runs."""
    from tokennorm.ops.dtn_cpu import build

    try:
        build()
    except Exception as error:  # the same as the dispatch of DTN does
        return f'not compiled, the slower eager form runs ({_first_line(error)})'
    return 'compiled'


CHECKS = (check_packages, check_mmcv_ops, check_imports, check_gpu, check_dtn_kernel)


def main() -> int:
    """Prints versions and checks, and returns the exit status."""
    print(f'{"python":<24}{platform.python_version()}, {sys.executable}')
    opencv = 'opencv-python-headless' if version_of('opencv-python-headless') else 'opencv-python'
    for name in (*PACKAGES.values(), 'numpy', opencv):
        print(f'{name:<24}{version_of(name) or "not installed"}')
    print()
    for check in CHECKS:
        name = check.__name__.removeprefix('check_')
        try:
            print(f'ok    {name}: {check()}', flush=True)
        except Fault as fault:
            print(f'FAIL  {name}: {fault}')
            return 1
    return 0


def _first_line(error: Exception) -> str:
    return str(error).strip().partition('\n')[0]


if __name__ == '__main__':
    sys.exit(main())
