"""Prints versions, and tests what often breaks in an environment with mmcv: `python -m tokennorm.cli.check_env`.

Each failed test comes with the command that fixes it. Missing packages are reported.
Exit status: 0 when all is well, else 1.
"""

import importlib
import platform
import shutil
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

from tokennorm.environment import MAKE_ENV, PACKAGES, PIP, Check, check_mmcv_ops, rebuild_mmcv, version_of

FORK_OF = {'mmcv-full': 'onedl-mmcv', 'mmcv-lite': 'onedl-mmcv', 'mmengine-lite': 'onedl-mmengine'}
FORK_OF |= {name: PACKAGES[name] for name in ('mmengine', 'mmcv', 'mmdet', 'mmpretrain')}


def check_packages() -> Check:
    """Checks that all packages are installed."""
    missing = [PACKAGES[name] for name in PACKAGES if find_spec(name) is None]
    return Check('packages', f'not installed: {", ".join(missing)}' if missing else '', MAKE_ENV)


def check_duplicates() -> Check:
    """Checks that no original is installed besides its fork: they would fill one folder with files of both."""
    twice = {name: fork for name, fork in FORK_OF.items() if version_of(name) and version_of(fork)}
    forks = ' '.join(f'{fork}=={version_of(fork)}' for fork in sorted(set(twice.values())))
    problem = f'installed twice, as original and as fork: {", ".join(twice)}' if twice else ''
    again = f'{PIP} install --force-reinstall --no-deps --no-build-isolation {forks}'
    return Check('one mmdet, mmcv, mmengine', problem, f'{PIP} uninstall -y {" ".join(twice)} && {again}')


def check_imports() -> Check:
    """Checks that the versions accept each other: mmdet and mmpretrain check mmcv's and mmengine's on import."""
    for name in ('cv2', 'mmengine', 'mmcv', 'mmdet', 'mmpretrain'):
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a package does when it is imported
            return Check('imports', f'import {name} fails: {type(error).__name__}: {error}', MAKE_ENV)
    return Check('imports')


def check_gpu(torch: Any, nms: Any) -> Check:
    """Checks that torch and mmcv's ops have code for the GPU. Either may be None: it cannot be imported."""
    if torch is None or not (torch.cuda.is_available() or shutil.which('nvidia-smi')):
        return Check('GPU: there is none, everything runs on the CPU' if torch else 'GPU: not tested without torch')
    # CUDA 12.6 runs on older drivers and older GPUs than the CUDA 13 of torch's default build.
    older_cuda = f'{MAKE_ENV} TORCH_INDEX=https://download.pytorch.org/whl/cu126'
    if not torch.cuda.is_available():
        problem = f'torch {torch.__version__} cannot use it: it is built for the CPU, or the NVIDIA driver is too old'
        return Check('GPU', problem, older_cuda)
    major, minor = torch.cuda.get_device_capability()
    name = f'GPU {torch.cuda.get_device_name()}, sm_{major}{minor}'
    try:
        boxes = torch.ones(1, 4, device='cuda') * torch.arange(4, device='cuda')
        torch.cuda.synchronize()
    except RuntimeError as error:
        archs = ' '.join(torch.cuda.get_arch_list())
        return Check(name, f'torch {torch.__version__} has code for {archs} only ({_first_line(error)})', older_cuda)
    try:
        if nms:
            nms(boxes, boxes[:, 3], 0.5)
            torch.cuda.synchronize()
    except RuntimeError as error:
        target = f'sm_{major}{minor}' if 'no kernel image' in str(error) else 'CUDA'
        fix = rebuild_mmcv(f'FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST={major}.{minor}')
        return Check(name, f"mmcv's ops were not compiled for {target} ({_first_line(error)})", fix)
    return Check(name)


def check_dtn_kernel() -> Check:
    """Compiles DTN's CPU kernel, so that no training run waits for it. Without a compiler the eager form runs."""
    from tokennorm.ops.dtn_cpu import build

    try:
        build()
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        return Check(f"DTN's CPU kernel: not compiled, the slower eager form runs ({_first_line(error)})")
    return Check("DTN's CPU kernel")


def run_checks() -> list[Check]:
    """Runs all checks; without the packages only the first two."""
    installed = [check_packages(), check_duplicates()]
    if installed[0].problem:
        return installed
    ops = check_mmcv_ops()
    nms = None if ops.problem else getattr(_try_import('mmcv.ops'), 'nms', None)
    return [*installed, ops, check_imports(), check_gpu(_try_import('torch'), nms), check_dtn_kernel()]


def versions() -> dict[str, str]:
    """Returns the versions that a bug report needs, by name."""
    torch = _try_import('torch')
    found = {name: version_of(name) or 'not installed' for name in (*PACKAGES.values(), 'numpy', 'opencv-python')}
    cuda = torch.version.cuda or 'none' if torch else 'unknown'
    return {'python': f'{platform.python_version()}, {sys.executable}', **found, 'CUDA of torch': cuda}


def main() -> int:
    """Prints versions and checks, and returns the exit status."""
    for name, version in versions().items():
        print(f'{name:<20}{version}')
    checks = run_checks()
    print('', *checks, sep='\n')
    return int(any(check.problem for check in checks))


def _first_line(error: Exception) -> str:
    return str(error).strip().split('\n')[0]


def _try_import(name: str) -> Any:
    """Returns None if it cannot be imported; the checks report the reason."""
    try:
        return importlib.import_module(name)
    except Exception:
        return None


if __name__ == '__main__':
    sys.exit(main())
