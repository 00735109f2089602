"""Builds DTN's CPU kernel into the wheel where there is a C++ compiler. setup.cfg and pyproject.toml have the rest.

An editable installation compiles the kernel at its first use.
"""

import importlib.util
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel, get_platform
from setuptools.command.build_py import build_py

KERNEL = Path('tokennorm', 'ops', 'cpu')
spec = importlib.util.spec_from_file_location('build_kernel', Path(__file__).parent / 'projects' / KERNEL / 'build.py')
build_kernel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build_kernel)


class BuildKernel(build_py):
    """Copies the package, and compiles the kernel next to the copy of its sources."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib, KERNEL)
        for path in folder.glob('*.so'):  # of an earlier build
            path.unlink()
        try:
            paths = build_kernel.build_all(folder)
        except RuntimeError as error:
            print(f'tokennorm: this wheel has no CPU kernel of DTN, {error}', file=sys.stderr)
        else:
            print(f'tokennorm: CPU kernel of DTN for {", ".join(path.stem.removeprefix("dtn-") for path in paths)}')


class PlatformWheel(bdist_wheel):
    """Names the wheel by the platform if it has the kernel: py3-none-linux_x86_64, for example, else py3-none-any."""

    def get_tag(self) -> tuple[str, str, str]:
        has_kernel = any(Path(self.get_finalized_command('build').build_lib, KERNEL).glob('*.so'))
        return 'py3', 'none', get_platform(self.bdist_dir).replace('-', '_') if has_kernel else 'any'


setup(cmdclass={'build_py': BuildKernel, 'bdist_wheel': PlatformWheel})
