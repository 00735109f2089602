"""Tests of what often breaks in an environment with mmcv, each with the command that fixes it."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util

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
FORK_OF = {  # original distributions
    'mmengine': 'onedl-mmengine',
    'mmengine-lite': 'onedl-mmengine',
    'mmcv': 'onedl-mmcv',
    'mmcv-full': 'onedl-mmcv',
    'mmcv-lite': 'onedl-mmcv',
    'mmdet': 'onedl-mmdetection',
    'mmpretrain': 'onedl-mmpretrain',
}
PIP = f'{sys.executable} -m pip'
MAKE_ENV = 'make env' if sys.prefix == sys.base_prefix else f'make env VENV={sys.prefix}'


@dataclass(frozen=True)
class Result:
    """One test: no problem, or a problem and the command that fixes it."""

    name: str
    problem: str = ''
    fix: str = ''

    def __str__(self):
        return f'FAIL  {self.name}: {self.problem}\n      {self.fix}' if self.problem else f'ok    {self.name}'


def available_cores() -> int:
    """Returns the number of logical cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def version_of(distribution: str) -> str:
    """Returns '' if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ''


def pinned(distribution: str) -> str:
    version = version_of(distribution).split('+')[0]
    return f'{distribution}=={version}' if version else distribution


def rebuild_mmcv(variables: str = '') -> str:
    """Returns the command that compiles mmcv for the installed torch, and replaces an older wheel in pip's cache."""
    path = f'PATH={os.path.dirname(sys.executable)}:$PATH {variables}'.strip()  # ninja, which compiles in parallel
    tools = f"{PIP} install 'setuptools<82' wheel ninja psutil"
    install = f'{PIP} install --force-reinstall --no-deps --no-build-isolation --no-binary onedl-mmcv'
    return f'{tools}; {PIP} cache remove onedl_mmcv; {path} {install} {pinned("onedl-mmcv")}'


def check_packages(find=util.find_spec) -> Result:
    missing = [PACKAGES[name] for name in PACKAGES if find(name) is None]
    return Result('packages', f'not installed: {", ".join(missing)}' if missing else '', MAKE_ENV)


def check_duplicates(version=version_of) -> Result:
    """An original and its fork fill one folder with files of both."""
    twice = [name for name in FORK_OF if version(name) and version(FORK_OF[name])]
    forks = sorted({FORK_OF[name] for name in twice})
    problem = f'installed twice, as original and as fork: {", ".join(twice)} and {", ".join(forks)}' if twice else ''
    again = f'{PIP} install --force-reinstall --no-deps {" ".join(pinned(fork) for fork in forks)}'
    if 'onedl-mmcv' in forks:
        again += ' --no-build-isolation'
    return Result('one mmdet, mmcv, mmengine', problem, f'{PIP} uninstall -y {" ".join(twice)} && {again}')


def check_setuptools(version: str) -> Result:
    """setuptools 82 dropped pkg_resources, and torch 2.11 requires an older one."""
    too_new = version and int(version.split('.')[0]) >= 82
    problem = f'{version} has no pkg_resources, and torch requires setuptools<82' if too_new else ''
    return Result('setuptools', problem, f"{PIP} install 'setuptools<82'")


def check_opencv(load=importlib.import_module) -> Result:
    try:
        load('cv2')
    except ImportError as error:
        fix = f'{PIP} install --force-reinstall --no-deps {pinned("opencv-python-headless")}'
        return Result('opencv', f'import cv2 fails: {error}', fix)
    return Result('opencv')


def check_mmcv_ops(load=importlib.import_module) -> Result:
    """Checks that the compiled ops exist and fit the installed torch."""
    name = "mmcv's compiled ops"
    try:
        load('torch')
        load('mmcv._ext')
    except ModuleNotFoundError as error:
        if error.name == 'mmcv._ext':
            return Result(name, 'mmcv was installed without them (pip builds it so in isolation)', rebuild_mmcv())
        return Result(name, f'cannot be tested: {error}', MAKE_ENV)
    except ImportError as error:
        if re.search(r'undefined symbol|lib(c10|torch)\w*\.so|libcudart', str(error)):
            problem = f'mmcv was compiled for another torch than the installed {version_of("torch")} ({error})'
            return Result(name, problem, rebuild_mmcv())
        return Result(name, f'cannot be tested: {error}', MAKE_ENV)
    return Result(name)


def check_imports(load=importlib.import_module) -> Result:
    """Checks that the versions accept each other: mmdet and mmpretrain check mmcv's and mmengine's on import."""
    for name in ('mmengine', 'mmcv', 'mmdet', 'mmpretrain'):
        try:
            load(name)
        except Exception as error:  # whatever a package does when it is imported
            return Result('imports', f'import {name} fails: {type(error).__name__}: {error}', MAKE_ENV)
    return Result('imports')


def check_gpu(torch, nms) -> Result:
    """Checks that torch and mmcv's ops have code for the GPU. Both are None if they cannot be imported."""
    if torch is None or not (torch.cuda.is_available() or shutil.which('nvidia-smi')):
        return Result('GPU: there is none, everything runs on the CPU' if torch else 'GPU: not tested without torch')
    # CUDA 12.6 runs on older drivers and older GPUs than the CUDA 13 of torch's default build.
    older_cuda = f'{MAKE_ENV} TORCH_INDEX=https://download.pytorch.org/whl/cu126'
    if not torch.cuda.is_available():
        problem = f'torch {torch.__version__} cannot use it: it is built for the CPU, or the NVIDIA driver is too old'
        return Result('GPU', problem, older_cuda)
    major, minor = torch.cuda.get_device_capability()
    name = f'GPU {torch.cuda.get_device_name()}, sm_{major}{minor}'
    try:
        boxes = torch.ones(1, 4, device='cuda') * torch.arange(4, device='cuda')
        torch.cuda.synchronize()
    except RuntimeError as error:
        archs = ' '.join(torch.cuda.get_arch_list())
        return Result(name, f'torch {torch.__version__} has code for {archs} only ({first_line(error)})', older_cuda)
    try:
        if nms:
            nms(boxes, boxes[:, 3], 0.5)
            torch.cuda.synchronize()
    except RuntimeError as error:
        target = f'sm_{major}{minor}' if 'no kernel image' in str(error) else 'CUDA'
        fix = rebuild_mmcv(f'FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST={major}.{minor}')
        return Result(name, f"mmcv's ops were not compiled for {target} ({first_line(error)})", fix)
    return Result(name)


def check_dtn_kernel(build: Callable[[], object]) -> Result:
    """Compiles DTN's CPU kernel, so that no training waits for it. Without a compiler the eager form runs."""
    try:
        build()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return Result(f"DTN's CPU kernel: not compiled, the slower eager form runs ({first_line(error)})")
    return Result("DTN's CPU kernel")


def require_mmcv_ops() -> None:
    """Raises a clear error if mmcv has no compiled ops, such as NMS."""
    result = check_mmcv_ops()
    if result.problem:
        raise RuntimeError(f'{result.name}: {result.problem}\nFix it with\n  {result.fix}')


def first_line(error: Exception) -> str:
    return str(error).strip().split('\n')[0]


def try_import(name: str):
    """Returns None if it cannot be imported; the tests above report the reason."""
    try:
        return importlib.import_module(name)
    except Exception:
        return None


def run_checks() -> list[Result]:
    installed = [check_packages(), check_duplicates(), check_setuptools(version_of('setuptools'))]
    if installed[0].problem:
        return installed
    ops = check_mmcv_ops()
    nms = None if ops.problem else getattr(try_import('mmcv.ops'), 'nms', None)
    results = [*installed, check_opencv(), ops, check_imports(), check_gpu(try_import('torch'), nms)]
    kernel = try_import('tokennorm.ops.dtn_cpu')
    return [*results, check_dtn_kernel(kernel.build)] if kernel else results
