"""Set up the environment: what `make env`, `make demo` and `make test` run first.

It installs what requirements/ pins, in the order that works: torch, the build tools, opencv, onedl-mmcv (compiled
against that torch, hence without build isolation), the rest, and this package, editable. Finished steps are recorded
inside the environment, in tokennorm_setup/state.json, and skipped from then on; the logs of pip lie beside it.

Standard library only, and the file parses on any Python 3 so that it can say which one is needed. Variables:
  TORCH_INDEX   the index with torch and torchvision, e.g. https://download.pytorch.org/whl/cpu
  MMCV_INDEX    compiled wheels of onedl-mmcv: a simple index, a page of links or a folder
  MAX_JOBS, CFLAGS, CXXFLAGS, CUDA_HOME, FORCE_CUDA, TORCH_CUDA_ARCH_LIST   what compiling mmcv listens to
The environment remembers the first two until they are set anew, empty to forget them. What pip itself reads (its
configuration, PIP_*) stays in force.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / 'requirements'
OLDEST, NEWEST = (3, 10), (3, 13)  # the pins have wheels for these versions of Python
COMPILE_MINUTES = 15  # of one core, for mmcv's ops without CUDA: 78 files, 12 measured on a server's core of 2023
ORIGINALS = {'mmcv', 'mmcv-full', 'mmcv-lite', 'mmengine', 'mmengine-lite', 'mmdet', 'mmpretrain'}

PROBE = """
import glob, json, os, re, sys, sysconfig
ops = glob.glob(os.path.join(sysconfig.get_paths()['platlib'], 'mmcv', '_ext*.so'))
info = {'python': sys.version_info[:2], 'include': sysconfig.get_paths()['include'], 'installed': {},
        'cflags': sysconfig.get_config_var('CFLAGS') or '', 'mmcv ops': [(f, os.stat(f).st_mtime) for f in ops]}
if sys.version_info >= (3, 10):
    from importlib import metadata
    for item in metadata.distributions():
        info['installed'][re.sub('[-_.]+', '-', item.metadata['Name'] or '').lower()] = item.version
print(json.dumps(info))
"""

# The argument is where nvcc was found. Without it a GPU machine gets ops for the CPU, of which check_compiler() warns.
MMCV_PROOF = """
import os, sys
import torch
import mmcv._ext
from mmcv.ops import get_compiling_cuda_version, nms
cuda = os.environ.get('FORCE_CUDA') == '1' or (sys.argv[1] and torch.cuda.is_available())
if cuda and get_compiling_cuda_version() == 'not available':
    sys.exit('mmcv was compiled without its CUDA ops')
boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0]], device='cuda' if cuda and torch.cuda.is_available() else 'cpu')
nms(boxes, boxes.new_ones(1), 0.5)[0].cpu()
"""

CLEAR_LINE = '\r\033[K' if sys.stdout.isatty() else ''
MOVE_ADVICE = 'VENV=, TMPDIR= and PIP_CACHE_DIR= move the environment, temporary files and cache of pip elsewhere.'
COMPILER_ADVICE = (
    "Install a compiler and Python's headers (Debian, Ubuntu: sudo apt install build-essential python3-dev; Fedora: "
    'sudo dnf install gcc-c++ python3-devel; conda: conda install gxx), or name compiled wheels with MMCV_INDEX='
)
ADVICE = {  # what pip's log says, and what to do about it
    r'No space left on device': 'A disk is full: free some space. ' + MOVE_ADVICE,
    r'name resolution|NewConnectionError|Network is unreachable|Connection refused|timed out|ProxyError|SSLError': (
        'A package index could not be reached: check the network, HTTPS_PROXY and `pip config list`.'
    ),
    r'CUDA version .* mismatches': (
        'nvcc and torch are of different CUDA versions: name the fitting toolkit with CUDA_HOME=, or the torch for '
        'yours with TORCH_INDEX=https://download.pytorch.org/whl/cu126 (cu128, cu130).'
    ),
    r"directory: '[cg]\+\+|unable to execute|Python\.h: No such": 'mmcv has to be compiled. ' + COMPILER_ADVICE,
    r'Killed|Cannot allocate memory': 'The compiler ran out of memory: compile one file at a time with MAX_JOBS=1.',
    r'Permission denied': 'The environment or a cache cannot be written. ' + MOVE_ADVICE,
    r'No matching distribution': 'No index has this version: check TORCH_INDEX, MMCV_INDEX and `pip config list`.',
}


class SetupError(Exception):
    """For the user to mend: printed without a traceback."""


class Environment:
    """The interpreter that is set up, what it has installed, and the steps that are recorded as done."""

    def __init__(self, prefix):
        self.python = str(prefix / 'bin' / 'python')
        self.folder = prefix / 'tokennorm_setup'
        self.folder.mkdir(exist_ok=True)
        self.state_file = self.folder / 'state.json'
        self.state = read_state(prefix)
        self.refresh()

    def refresh(self):
        """Look again at what is installed."""
        self.info = probe(self.python)
        self.installed = self.info['installed']

    def record(self, entries):
        """Keep entries of the state for the next start."""
        self.state.update(entries)
        draft = self.folder / 'state.json.new'
        draft.write_text(json.dumps(self.state, indent=1))
        os.replace(str(draft), str(self.state_file))

    def failure_of(self, proof):
        """What the code prints when it fails; '' when it runs to its end."""
        process = subprocess.run(
            [self.python, '-c', proof, find_nvcc()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output = process.stdout.decode(errors='replace').strip()
        return '' if process.returncode == 0 else output or f'exit status {process.returncode}'


class Step:
    """Pins to install, a proof that they work, what mends a failed proof, and what else to watch for changes."""

    def __init__(self, name, files, arguments, proof='', mend=(), remember=(), watch=()):
        self.name, self.proof, self.mend, self.stale_wheels = name, proof, list(mend), []
        self.remember, self.watch = dict(remember), watch
        self.files = [REQUIREMENTS / (file + '.txt') for file in files.split()]
        self.install = ['install'] + [word for file in self.files for word in ('-r', str(file))] + arguments

    def key(self, env):
        """A hash of all that the step depends on."""
        texts = [file.read_text() for file in self.files]
        ops = env.info['mmcv ops'] if self.proof == MMCV_PROOF else ''
        parts = [env.info['python'], env.installed.get('torch'), texts, ops, self.watch, self.remember]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def done(self, env):
        """Whether it was done, and nothing that it depends on has changed since."""
        present = pins_present(self.files, env.installed) if self.files else self.name in env.installed
        return present and env.state.get(self.name) == self.key(env)

    def run(self, env, label):
        """Install; where the proof fails, once more over what was there before, then what mends it."""
        again = [self.install + ['--force-reinstall', '--no-deps']] if pins_present(self.files, env.installed) else []
        for arguments in [self.install] + again + self.mend:
            if arguments in self.mend:
                for wheel in self.stale_wheels:  # pip complains quietly of those that are not there
                    subprocess.call([env.python, '-m', 'pip', '-qqq', 'cache', 'remove', wheel])
            call(env, label, ['-m', 'pip'] + arguments)
            failure = env.failure_of(self.proof) if self.proof else ''
            if not failure:
                break
            say(f'{label}: installed, but it fails: {failure.splitlines()[-1]}')
        else:
            raise SetupError(f'{self.name} is installed but does not work:\n{failure}\nLogs of pip: {env.folder}')
        env.refresh()
        env.record({self.name: self.key(env), **self.remember})


def plan(python, state):
    """The steps, in their order, for the environment's version of Python and what is recorded of it."""
    torch_index, mmcv_index = remembered('TORCH_INDEX', state), remembered('MMCV_INDEX', state)
    pinned = [word for name in ('torch', 'opencv', 'runtime') for word in ('-c', str(REQUIREMENTS / (name + '.txt')))]
    torch = ['--index-url', torch_index] if torch_index else pinned[2:]
    if torch_index != state.get('TORCH_INDEX', torch_index):  # the same version from elsewhere
        torch = torch + ['--force-reinstall']
    package = [str(ROOT)] + [(ROOT / name).read_text() for name in ('setup.cfg', 'pyproject.toml')]
    headless = '=='.join(read_pins(REQUIREMENTS / 'opencv.txt')[1])
    return [
        Step('torch', 'torch', torch, 'import torch, torchvision', remember={'TORCH_INDEX': torch_index}),
        Step('build tools', 'build', pinned),
        Step('opencv', 'opencv', pinned, 'import cv2', mend=[['install', '--force-reinstall', '--no-deps', headless]]),
        mmcv_step(mmcv_index, python, pinned),
        Step('the rest', 'runtime tests', pinned),
        Step('tokennorm', '', ['--no-deps', '--no-build-isolation', '-e', str(ROOT)], watch=package),
    ]


def mmcv_step(index, python, pinned):
    """Prebuilt where an index is named; else compiled, or taken from pip's cache of what it compiled before.

    The cached wheel may lack the ops (pip built it in isolation) or be for another torch, which shows when the ops are
    imported. Then it is dropped and mmcv compiled again, which leaves the right wheel in the cache.
    """
    source, again, stale = ['--no-build-isolation', '-v'], ['--no-binary', 'onedl-mmcv'], cached_wheels(python)
    if index:  # of the two readings of an index pip passes over the one that does not fit
        source = ['--only-binary', 'onedl-mmcv', '--extra-index-url', index, '--find-links', index]
        again, stale = [], []
    watch = [os.environ.get('FORCE_CUDA'), has_gpu(), find_nvcc()]
    step = Step('mmcv', 'mmcv', source + pinned, MMCV_PROOF, remember={'MMCV_INDEX': index}, watch=watch)
    step.stale_wheels = stale
    step.mend = [step.install + ['--force-reinstall', '--no-deps'] + again]
    return step


def set_up(prefix):
    """Find out beforehand what can be, make the environment, then run the steps that are not done."""
    began = time.time()
    interpreter = find_interpreter(prefix)
    is_new = not (prefix / 'bin' / 'python').exists()
    info, state = probe(interpreter), read_state(prefix)
    check_python(interpreter, info['python'])
    if sys.version_info < OLDEST:  # an old Python was given a good environment: go on with that one
        os.execv(interpreter, [interpreter] + sys.argv)
    installed = {} if is_new else info['installed']
    check_foreign(prefix, state, installed)
    steps = plan(info['python'], state)
    if not all(pins_present(step.files, installed) for step in steps):
        check_disk(prefix, installed, remembered('TORCH_INDEX', state))
        check_compiler(info, installed, remembered('MMCV_INDEX', state))
    if is_new:
        make_venv(prefix)
    env = Environment(prefix)
    if 'pip' not in env.installed:
        call(env, 'pip', ['-m', 'ensurepip', '--upgrade', '--default-pip'])
        env.refresh()
    if all(step.done(env) for step in steps):
        return
    for number, step in enumerate(steps, 1):
        if not step.done(env):
            step.run(env, f'[{number}/{len(steps)}] {step.name}')
    say(f'{prefix} is ready after {elapsed(began)}')


# What can be known beforehand.


def find_interpreter(prefix):
    """The environment's Python, or the one that runs this file where the environment has to be made."""
    python = prefix / 'bin' / 'python'
    if python.exists():
        return str(python)
    if os.path.lexists(str(python)):
        raise SetupError(f'{python} points to a Python that is gone. Remove {prefix} and run this again.')
    made_by_venv = {'bin', 'include', 'lib', 'lib64', 'pyvenv.cfg', '.gitignore'}
    if prefix.exists() and not (prefix.is_dir() and made_by_venv.issuperset(os.listdir(str(prefix)))):
        raise SetupError(f'{prefix} is no Python environment: it has no bin/python. Name another folder with VENV=')
    return sys.executable


def check_python(interpreter, version):
    """Raise a SetupError for a Python that the pinned packages do not exist for."""
    if not OLDEST <= tuple(version) <= NEWEST:
        found, oldest, newest = ('.'.join(map(str, numbers)) for numbers in (version, OLDEST, NEWEST))
        raise SetupError(
            f'{interpreter} is Python {found}, and the pinned packages exist for {oldest} to {newest}. '
            'Name such a Python with PYTHON= (make env PYTHON=python3.11), or an environment with VENV='
        )


def check_foreign(prefix, state, installed):
    """Neither replace the torch of somebody's environment nor put the forks over the original packages."""
    originals = sorted(ORIGINALS & set(installed))
    forks = sorted(name for name in installed if name.startswith('onedl-'))  # they lose the files that they share
    if originals:
        raise SetupError(
            f'{prefix} has the original {", ".join(originals)}, which the onedl-* forks would overwrite. '
            f'Name another environment with VENV=, or remove them:\n'
            f'  {prefix}/bin/python -m pip uninstall -y {" ".join(originals + forks)}'
        )
    pinned = dict(read_pins(REQUIREMENTS / 'torch.txt'))['torch']
    if not state and installed.get('torch', pinned).split('+')[0] != pinned:
        replaced = f'{prefix} has torch {installed["torch"]}, which would be replaced by the pinned {pinned}.'
        raise SetupError(f'{replaced} Name another environment with VENV=, or uninstall torch there.')


def check_disk(prefix, installed, torch_index):
    """Room in the environment, and for what pip downloads in its temporary folder and its cache."""
    torch_size, torch_download = (1.0, 0.3) if 'cpu' in torch_index else (4.7, 2.2)
    size, download = (1.0, 0.3) if 'torch' in installed else (1.0 + torch_size, 0.3 + torch_download)
    cached = 0 if os.environ.get('PIP_NO_CACHE_DIR') else download
    needs = {}
    for folder, gigabytes in ((prefix, size), (Path(tempfile.gettempdir()), download), (pip_cache(), cached)):
        folder = next(path for path in [folder] + list(folder.parents) if path.exists())
        needs.setdefault(folder.stat().st_dev, [folder, 0])[1] += gigabytes
    for folder, gigabytes in needs.values():
        free = shutil.disk_usage(str(folder)).free / 1e9
        if free < gigabytes:
            need = f'{folder} has {free:.1f} GB free, and about {gigabytes:.1f} GB are needed there.'
            raise SetupError(f'{need} Free some space. {MOVE_ADVICE}')


def check_compiler(info, installed, mmcv_index):
    """What compiling mmcv needs, where it will be compiled."""
    cached = (pip_cache() / 'wheels').glob(f'*/*/*/*/{cached_wheels(info["python"])[0]}*.whl')
    if mmcv_index or pins_present([REQUIREMENTS / 'mmcv.txt'], installed) or any(cached):
        return
    compiler = os.environ.get('CXX', 'c++')
    if not shutil.which(compiler.split()[0]):
        raise SetupError(f'mmcv has to be compiled, and there is no C++ compiler ({compiler}). {COMPILER_ADVICE}')
    if not Path(info['include'], 'Python.h').exists():
        raise SetupError(f'mmcv has to be compiled, and there is no {info["include"]}/Python.h. {COMPILER_ADVICE}')
    if has_gpu() and not find_nvcc():
        say(
            'WARNING: a GPU but no nvcc. mmcv gets its operators for the CPU only, and detectors cannot train on the\n'
            "GPU. Install the CUDA toolkit of torch's CUDA version, name its folder with CUDA_HOME=, run this again\n"
            '(mmcv is compiled anew then), or name compiled wheels with MMCV_INDEX='
        )


def has_gpu():
    """Whether there is one of NVIDIA."""
    return bool(shutil.which('nvidia-smi')) or Path('/dev/nvidia0').exists()


def find_nvcc():
    """Where torch's extension builder would find it; '' where it would not."""
    home = os.environ.get('CUDA_HOME') or os.environ.get('CUDA_PATH')
    if home:
        return shutil.which('nvcc', path=str(Path(home, 'bin'))) or ''
    return shutil.which('nvcc') or shutil.which('nvcc', path='/usr/local/cuda/bin') or ''


# Requirement files, what is recorded, and pip's cache.


def read_pins(file):
    """(name, version) for each `name==version` of a requirement file; markers may give a name several versions."""
    return re.findall(r'^([\w.-]+)==([\w.]+)', file.read_text(), re.MULTILINE)


def pins_present(files, installed):
    """Whether all that the requirement files pin is installed in those versions."""
    pins = [pin for file in files for pin in read_pins(file)]
    return all((name, installed.get(name, '').split('+')[0]) in pins for name, _ in pins)


def read_state(prefix):
    """What earlier starts have recorded."""
    file = prefix / 'tokennorm_setup' / 'state.json'
    return json.loads(file.read_text()) if file.exists() else {}


def remembered(variable, state):
    """As set now (empty: forgotten), or as it was when its step was done."""
    return os.environ.get(variable, state.get(variable, ''))


def pip_cache():
    """pip's folder of wheels and downloads."""
    home = Path(os.path.expanduser(os.environ.get('XDG_CACHE_HOME') or '~/.cache'))
    return Path(os.environ.get('PIP_CACHE_DIR') or home / 'pip')


def cached_wheels(python):
    """How pip names the wheels of mmcv that it built for this Python: with the ops, and without them."""
    start = 'onedl_mmcv-{}'.format(dict(read_pins(REQUIREMENTS / 'mmcv.txt'))['onedl-mmcv'])
    return ['{}-cp{}{}'.format(start, *python), f'{start}-py3']


# Calls of the interpreter.


def probe(interpreter):
    """What an interpreter is, and what it has installed, as PROBE prints it."""
    process = subprocess.run([interpreter, '-c', PROBE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = process.stdout.decode(errors='replace').strip()
    if process.returncode:
        raise SetupError(f'{interpreter} does not run:\n{output}\nRemove the environment, or name another with VENV=')
    return json.loads(output.splitlines()[-1])


def make_venv(prefix):
    """Make an environment with this interpreter."""
    if importlib.util.find_spec('ensurepip') is None:
        raise SetupError(
            f'{sys.executable} has no ensurepip and cannot make environments. Install it (Debian, Ubuntu: '
            'sudo apt install python3-venv), or name an environment with VENV='
        )
    say(f'Making {prefix} with {sys.executable}')
    if subprocess.call([sys.executable, '-m', 'venv', str(prefix)]):
        raise SetupError(f'{prefix} could not be made: see above.')


def call(env, label, arguments):
    """Run the environment's Python with its output in a log file, and show how far it is."""
    log = env.folder / (re.sub(r'\W+', '_', label).strip('_') + '.log')
    began, command = time.time(), [env.python] + arguments
    with open(str(log), 'ab') as output:
        output.write('\n$ {}\n'.format(' '.join(command)).encode())
        output.flush()
        start = output.tell()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=build_environment(env)
        )
    try:
        follow(process, log, start, label)
    except KeyboardInterrupt:  # pip got it as well and tidies up
        wait(process, 10)
        process.kill()
        raise
    if process.returncode:
        raise SetupError(explain(label, log, start))
    say(f'{label}: done in {elapsed(began)}')


def build_environment(env):
    """For the compiler: Python's own flags (setuptools drops them for ours), the user's, no debug information."""
    variables = dict(os.environ)
    for name in ('CFLAGS', 'CXXFLAGS'):
        variables[name] = ' '.join([env.info['cflags'], os.environ.get(name, ''), '-g0'])
    variables.setdefault('MAX_JOBS', str(cores()))
    variables['PATH'] = os.path.dirname(env.python) + os.pathsep + os.environ.get('PATH', '')  # ninja
    if has_gpu() and not find_nvcc():
        variables['CUDA_VISIBLE_DEVICES'] = ''  # mmcv's build would ask for nvcc
    return variables


def follow(process, log, start, label):
    """Show what the log says last and the time: on one line of a terminal, in a file every ten seconds."""
    began, status = time.time(), 'checking'
    due = began + (0 if CLEAR_LINE else 10)
    with open(str(log), 'rb') as lines:
        lines.seek(start)
        running = True
        while running:
            running = process.poll() is None
            for line in lines:
                text = line.decode(errors='replace')
                status = describe(text) or status
                if 'Building wheel for onedl-mmcv' in text and 'started' in text:
                    announce_compile()
            if running and time.time() > due:
                due = time.time() + (0.5 if CLEAR_LINE else 10)
                show(f'{label}: {status}, {elapsed(began)} elapsed')
            if running:
                wait(process, 0.2)


def wait(process, seconds):
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)


def describe(line):
    """A line of pip's or ninja's output in a few words; '' for most lines."""
    for pattern, words in (
        (r'\s*\[(\d+/\d+)\] ', 'compiled {} files'),
        (r'\s*Downloading (\S+ \([^)]*\))', 'downloading {}'),
        (r'\s*Building wheel for (\S+)', 'building {}'),
        (r'(Installing) collected', 'installing'),
    ):
        found = re.match(pattern, line)
        if found:
            return words.format(found.group(1))
    return ''


def announce_compile():
    """Say how long the compilation of mmcv will take."""
    cuda = os.environ.get('FORCE_CUDA') == '1' or (has_gpu() and find_nvcc())
    jobs = int(os.environ.get('MAX_JOBS') or cores())
    minutes = math.ceil(COMPILE_MINUTES / jobs)
    say(
        f'Compiling the operators of mmcv for the CPU{" and CUDA" if cuda else ""}, {jobs} files at a time: about '
        f'{minutes} minutes{", and several times that for CUDA" if cuda else ""}.\n'
        'This happens once: pip keeps the wheel, and the next environment takes it from there.'
    )


def cores():
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()


def explain(label, log, start):
    """The end of the log, and what to do about it where that is known."""
    lines = [line for line in log.read_bytes()[start:].decode(errors='replace').splitlines() if line.strip()]
    end = '\n'.join(lines[-60:])
    advice = [advice for pattern, advice in ADVICE.items() if re.search(pattern, end)] + ['']
    tail = ''.join(f'\n  {line[:160]}' for line in lines[-8:])
    return f'{label} failed. {advice[0]}\nThe end of {log}:{tail}'


def say(text):
    print(CLEAR_LINE + text, flush=True)


def show(text):
    """Progress: the next output takes its place on a terminal."""
    if CLEAR_LINE:
        print(CLEAR_LINE + text[: shutil.get_terminal_size().columns - 1], end='', flush=True)
    else:
        say(text)


def elapsed(began):
    """Minutes and seconds since then."""
    return '{}:{:02d}'.format(*divmod(int(time.time() - began), 60))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--venv', default='.venv', help='the environment: made when it does not exist')
    prefix = Path(os.path.abspath(os.path.expanduser(parser.parse_args().venv)))
    try:
        set_up(prefix)
    except KeyboardInterrupt:
        sys.exit('\nInterrupted. Run the same command again: it goes on with the step that was not finished.')
    except (SetupError, OSError) as error:
        sys.exit(f'\nThe set-up stopped. {error}\nThen run the same command again: finished steps are not repeated.')


if __name__ == '__main__':
    main()
