"""Builds DTN's CPU kernel: shared libraries for a wheel, or one in the user's cache.

A wheel has one library per instruction set of its architecture, built by setup.py where there is a C++ compiler. Where
an installation has none, the first use compiles the one for the processor into `kernels/` of the cache directory:
`TOKENNORM_CACHE`, else `$XDG_CACHE_HOME/tokennorm`, else `~/.cache/tokennorm`. The compiler is `CXX`, else c++, g++ or
clang++. To compile ahead of the first use:

    python -m tokennorm.ops.cpu.build

setup.py runs this file before anything is installed: it imports the standard library only.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCE = FOLDER / 'dtn.cpp'
OPTIONS = ('-O3', '-std=c++17', '-fno-math-errno', '-fno-trapping-math', '-ffp-contract=fast', '-fPIC', '-shared')
OPTIONS += ('-pthread', '-w')
AVX2 = ('-mavx2', '-mfma', '-mbmi', '-mbmi2', '-mf16c', '-mlzcnt', '-mmovbe')
AVX512 = (*AVX2, '-mavx512f', '-mavx512bw', '-mavx512cd', '-mavx512dq', '-mavx512vl')
X86_64 = {'x86-64-v4': AVX512, 'x86-64-v3': AVX2, 'x86-64': ()}  # flags that compilers older than these names have, too


def instruction_sets() -> dict[str, tuple[str, ...]]:
    """The instruction sets of this machine's architecture, the largest first, with their compiler flags."""
    machine = platform.machine()
    return X86_64 if machine in ('x86_64', 'AMD64') else {machine: ()}


def built_library(name: str, folder: Path = FOLDER) -> Path:
    """Path of the library for an instruction set in an installed wheel."""
    return folder / f'dtn-{name}.so'


def build_all(folder: Path) -> list[Path]:
    """Compiles the kernel for each instruction set into a folder. The processor itself need not have them.

    Raises:
        RuntimeError: there is no compiler, or it cannot compile the kernel for any of them.
    """
    compiler = find_compiler()
    targets = {built_library(name, folder): flags for name, flags in instruction_sets().items()}

    def attempt(item: tuple[Path, tuple[str, ...]]) -> Exception | None:
        try:
            _compile(compiler, item[1], item[0])
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            return error
        return None

    with ThreadPoolExecutor() as pool:
        errors = list(pool.map(attempt, targets.items()))
    if all(errors):
        raise RuntimeError(str(errors[-1]))
    return [path for path in targets if path.is_file()]


def cached_library(name: str) -> Path:
    """Path of the library for an instruction set in the cache, where it is compiled first if it is missing.

    Raises:
        OSError, RuntimeError: the cache cannot be written, or nothing compiles the kernel.
    """
    from filelock import FileLock  # which torch requires

    from tokennorm.base.files import cache_directory

    compiler, flags = find_compiler(), instruction_sets()[name]
    version = subprocess.run([*compiler, '--version'], capture_output=True, timeout=60).stdout
    sources = [path.read_text(encoding='utf-8') for path in (SOURCE, *sorted(FOLDER.glob('*.h')))]
    key = hashlib.sha256(repr((sources, compiler, version, OPTIONS, flags)).encode()).hexdigest()[:16]
    folder = cache_directory() / 'kernels'
    target = folder / f'dtn-{name}-{key}.so'
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not target.exists():
        with FileLock(folder / 'lock'):  # other processes that compile wait
            if not target.exists():
                print('TokenNorm compiles the CPU kernel of DTN, once: some seconds', file=sys.stderr, flush=True)
                _compile(compiler, flags, target)
    return target


def find_compiler() -> list[str]:
    """The command of `CXX`, or the first C++ compiler on PATH."""
    try:
        command = shlex.split(os.environ.get('CXX', ''))
    except ValueError as error:
        raise RuntimeError(f'CXX={os.environ["CXX"]!r} is not a command: {error}') from error
    path = next(filter(None, map(shutil.which, command[:1] or ('c++', 'g++', 'clang++'))), None)
    if path is None:
        name = command[0] if command else 'c++, g++ or clang++ on PATH'
        raise RuntimeError(f'no C++ compiler was found ({name}). Install g++ or clang++')
    return [path, *command[1:]]


def _compile(compiler: list[str], flags: tuple[str, ...], target: Path) -> None:
    """Compiles in a temporary folder and renames, so that no process loads half a file."""
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        output = Path(directory, target.name)
        command = [*compiler, *OPTIONS, *flags, str(SOURCE), '-o', str(output)]
        done = subprocess.run(command, capture_output=True, text=True, encoding='utf-8', errors='replace', timeout=600)
        if done.returncode:
            lines = done.stderr.splitlines()
            errors = [line for line in lines if 'error' in line or 'No space' in line] or lines or ['no message']
            raise RuntimeError(f'{compiler[0]} failed: {errors[0][:300]}')
        with output.open('rb') as file:  # a power cut must not leave half a file: loading it would kill Python
            os.fsync(file.fileno())
        output.replace(target)


if __name__ == '__main__':
    from tokennorm.ops.cpu.kernel import library_path

    try:
        print(f'DTN CPU kernel: {library_path()}')
    except (OSError, RuntimeError, subprocess.SubprocessError) as problem:
        sys.exit(f'DTN CPU kernel: not compiled, the eager form will run: {problem}')
