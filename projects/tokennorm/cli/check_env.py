"""Prints versions, and tests what often breaks in an environment with mmcv: `python -m tokennorm.cli.check_env`.

Each failed test comes with the command that fixes it. Missing packages are reported.
Exit status: 0 when all is well, else 1.
"""

import platform
import shutil
import subprocess
import sys

from tokennorm.environment import PACKAGES, run_checks, try_import, version_of


def describe_compiler(command: str) -> str:
    path = shutil.which(command)
    if not path:
        return 'not found'
    lines = subprocess.run([path, '--version'], capture_output=True, text=True).stdout.strip().splitlines()
    return next((line for line in lines if 'release' in line), lines[0] if lines else path)


def versions() -> dict[str, str]:
    torch, ops = try_import('torch'), try_import('mmcv.ops')
    built = f' (compiled with {ops.get_compiler_version()}, CUDA {ops.get_compiling_cuda_version()})' if ops else ''
    found = {name: version_of(name) or 'not installed' for name in (*PACKAGES.values(), 'numpy', 'opencv-python')}
    found['onedl-mmcv'] += built
    return {
        'python': f'{platform.python_version()}, {sys.executable}',
        **found,
        'CUDA of torch': torch.version.cuda or 'none' if torch else 'unknown',
        'nvcc': describe_compiler('nvcc'),
        'C++ compiler': describe_compiler('c++'),
    }


def main() -> int:
    for name, version in versions().items():
        print(f'{name:<20}{version}')
    print()
    results = run_checks()
    print('\n'.join(map(str, results)))
    return int(any(result.problem for result in results))


if __name__ == '__main__':
    sys.exit(main())
