"""tools/setup_env.py against a stand-in for Python and pip: no network, no compiler, nothing installed.

The stand-in keeps what is "installed" in a file of each environment, and wheels of mmcv in the cache that PIP_CACHE_DIR
names. The text of a wheel says which torch its ops are for.
"""

import ast
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
FLAGS = ('CFLAGS', 'CXXFLAGS', 'MAX_JOBS')
FIRST_TIME = [
    'venv',
    'install torch',
    'prove torch, torchvision',
    'install build',
    'install opencv',
    'prove cv2',
    'install mmcv',
    'compile',
    'prove mmcv._ext',
    'install runtime tests',
    'install -e',
]


class FakePython:
    """Stands in for the module subprocess: runs the calls of Python and pip, in no time and without processes."""

    PIPE, STDOUT, DEVNULL, TimeoutExpired = -1, -2, -3, subprocess.TimeoutExpired

    def __init__(self, tmp):
        self.plan = {'fails': {}, 'compiles': 'torch 2.11.0', 'prebuilt': 'torch 2.11.0'}
        self.calls, self.arguments, self.compiler = [], [], {}
        self.wheels = tmp / 'cache' / 'wheels' / 'a' / 'b' / 'c' / 'd'
        self.wheels.mkdir(parents=True)

    def run(self, command, stdout, stderr):
        status, output = self.python(command, os.environ)
        return subprocess.CompletedProcess(command, status, output.encode())

    def call(self, command):
        return self.python(command, os.environ)[0]

    def Popen(self, command, stdin, stdout, stderr, env):
        status, output = self.python(command, env)
        stdout.write(output.encode())
        return SimpleNamespace(returncode=status, poll=lambda: status, wait=lambda timeout: status, kill=lambda: None)

    def python(self, command, environment):
        file = Path(command[0]).parents[1] / 'world.json'
        world = json.loads(file.read_text())
        status, output = self.act(world, command[1:], environment)
        file.write_text(json.dumps(world))
        return status, output

    def act(self, world, arguments, environment):
        if arguments[0] == '-c' and 'sysconfig' in arguments[1]:
            return 0, json.dumps({**world, 'mmcv ops': [world['ops']]})
        if arguments[0] == '-c':
            return self.prove(world, arguments[1])
        if arguments[1] == 'venv':
            self.calls.append('venv')
            make_python(Path(arguments[2]), **{**world, 'installed': {'pip': '23.2.1'}})
        elif arguments[1] == 'ensurepip':
            self.calls.append('ensurepip')
            world['installed']['pip'] = '23.2.1'
        elif 'cache' in arguments:
            self.calls.append('drop ' + arguments[-1])
            for wheel in self.wheels.glob(arguments[-1] + '*'):
                wheel.unlink()
        else:
            return self.install(world, arguments, environment)
        return 0, ''

    def prove(self, world, code):
        subject = re.findall('import (torch, torchvision|cv2|mmcv._ext)', code)[0]
        self.calls.append(f'prove {subject}')
        if subject == 'mmcv._ext' and world['ops'] != 'torch 2.11.0':
            return 1, 'ImportError: undefined symbol' if world['ops'] else "No module named 'mmcv._ext'"
        if subject == 'cv2' and world.get('libGL') == 'missing':
            return 1, 'ImportError: libGL.so.1'
        return 0, ''

    def install(self, world, arguments, environment):
        files = [Path(value) for flag, value in itertools.pairwise(arguments) if flag == '-r']
        names = [file.stem for file in files] + [word for word in arguments if word == '-e' or 'headless==' in word]
        self.calls.append(' '.join(['install', *names]))
        self.arguments.append(' '.join(arguments))
        for name in set(names) & set(self.plan['fails']):
            return 1, self.plan['fails'][name]
        output = self.install_mmcv(world, arguments, environment) if 'mmcv' in names else ''
        if '-e' in names:
            world['installed']['tokennorm'] = '0.1.0'
        if any('headless==' in name for name in names):
            world['libGL'] = 'not needed'
        for name, version in (pin for file in files for pin in re.findall(r'([\w-]+)==([\w.]+)', file.read_text())):
            if world['installed'].get(name, '').split('+')[0] != version:
                world['installed'][name] = version
        return 0, output

    def install_mmcv(self, world, arguments, environment):
        wheels = [*self.wheels.glob('onedl_mmcv-*-cp311-*'), *self.wheels.glob('onedl_mmcv-*-py3-*')]
        if world['installed'].get('onedl-mmcv') and '--force-reinstall' not in arguments:
            return ''
        if '--only-binary' in arguments or wheels:
            world['ops'] = self.plan['prebuilt'] if '--only-binary' in arguments else wheels[0].read_text()
            return ''
        self.calls.append('compile')
        self.compiler = environment
        world['ops'] = self.plan['compiles']
        self.cache('cp311-cp311-linux', world['ops'])
        return 'Building wheel for onedl-mmcv (pyproject.toml): started\n[78/78] c++ -c a.cpp\n'

    def cache(self, tag, text):
        (self.wheels / f'onedl_mmcv-2.3.6-{tag}.whl').write_text(text)


def make_python(prefix, **world):
    """What the set-up sees of an interpreter: a file, headers, and what it answers when it is asked."""
    for name in ('bin', 'include'):
        (prefix / name).mkdir(parents=True, exist_ok=True)
    (prefix / 'include' / 'Python.h').write_text('')
    (prefix / 'bin' / 'python').write_text('')
    default = {'python': [3, 11], 'include': str(prefix / 'include'), 'cflags': '-O3 -g', 'installed': {}, 'ops': ''}
    (prefix / 'world.json').write_text(json.dumps({**default, **world}))


class Machine:
    """A folder with an interpreter, a cache of pip and an environment, and the calls that were made there."""

    def __init__(self, tmp, monkeypatch):
        self.tmp, self.venv, self.monkeypatch = tmp, tmp / 'env', monkeypatch
        self.setup, self.fake = load_setup(), FakePython(tmp)
        self.plan = self.fake.plan
        make_python(tmp / 'base')
        monkeypatch.setattr(self.setup, 'subprocess', self.fake)
        monkeypatch.setattr(self.setup, 'has_gpu', lambda: False)
        monkeypatch.setattr(self.setup, 'find_nvcc', lambda: '')
        monkeypatch.setattr(sys, 'executable', str(tmp / 'base' / 'bin' / 'python'))
        monkeypatch.setenv('PIP_CACHE_DIR', str(tmp / 'cache'))
        for name in ('TORCH_INDEX', 'MMCV_INDEX', 'CUDA_HOME', 'CUDA_PATH', 'FORCE_CUDA', 'CXX', *FLAGS):
            monkeypatch.delenv(name, raising=False)

    def change(self, prefix=None, **entries):
        file = (prefix or self.venv) / 'world.json'
        file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))

    def world(self):
        return json.loads((self.venv / 'world.json').read_text())

    def make(self):
        """Run it as make does, and return the calls of this run; `self.arguments` has those of pip in full."""
        self.calls, self.arguments = self.fake.calls, self.fake.arguments = [], []
        self.monkeypatch.setattr(sys, 'argv', ['setup_env.py', '--venv', str(self.venv)])
        self.setup.main()
        return self.calls

    def fails(self):
        """Run it, and return what it says when it stops."""
        with pytest.raises(SystemExit) as stopped:
            self.make()
        assert stopped.value.code not in (0, None)
        return str(stopped.value.code)


def load_setup():
    spec = importlib.util.spec_from_file_location('setup_env', ROOT / 'tools' / 'setup_env.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


# The order, and what is skipped.


def test_first_time(machine, capsys):
    assert machine.make() == FIRST_TIME
    output = capsys.readouterr().out
    assert 'Compiling the operators of mmcv for the CPU' in output
    assert f'{machine.venv} is ready after 0:' in output


def test_second_time_calls_nothing_and_is_quick(machine, capsys):
    machine.make()
    capsys.readouterr()
    began = time.time()
    assert machine.make() == []
    assert time.time() - began < 2
    assert capsys.readouterr().out == ''


def test_existing_environment_with_the_right_versions_is_only_proved(machine):
    machine.make()
    shutil.rmtree(machine.venv / 'tokennorm_setup')
    calls = machine.make()
    assert 'compile' not in calls
    assert calls == [call for call in FIRST_TIME if call not in ('venv', 'compile')]
    assert not any('--force-reinstall' in line for line in machine.arguments)
    assert machine.make() == []


@pytest.mark.parametrize('name', ['onedl-mmcv', 'timm', 'tokennorm'])
def test_uninstalled_package_comes_back(machine, name):
    machine.make()
    machine.change(installed={key: value for key, value in machine.world()['installed'].items() if key != name})
    assert len(machine.make()) in (1, 2)
    assert name in machine.world()['installed']


def test_broken_mmcv_is_put_right_from_the_cache(machine):
    machine.make()
    machine.change(ops='')
    assert machine.make() == ['install mmcv', 'prove mmcv._ext'] * 2
    assert '--force-reinstall --no-deps' in machine.arguments[1]
    assert machine.world()['ops'] == 'torch 2.11.0'


def test_changed_pin_runs_its_step_only(machine, monkeypatch, tmp_path):
    requirements = tmp_path / 'requirements'
    shutil.copytree(ROOT / 'requirements', requirements)
    monkeypatch.setattr(machine.setup, 'REQUIREMENTS', requirements)
    machine.make()
    tests = requirements / 'tests.txt'
    tests.write_text(tests.read_text().replace('pytest==', 'pytest==1'))
    assert machine.make() == ['install runtime tests']


def test_another_torch_proves_mmcv_again(machine):
    machine.make()
    machine.change(installed={**machine.world()['installed'], 'torch': '2.11.0+cpu'})
    assert 'prove mmcv._ext' in machine.make()


# Going on after a stop.


@pytest.mark.parametrize('step', ['torch', 'opencv', 'mmcv', 'tests', '-e'])
def test_goes_on_with_the_step_that_failed(machine, step):
    machine.plan['fails'] = {step: 'ERROR: something'}
    assert 'Then run the same command again' in machine.fails()
    failed = len([call for call in machine.calls if call.startswith('install')])
    machine.plan['fails'] = {}
    installs = [call for call in machine.make() if call.startswith('install')]
    assert installs == [call for call in FIRST_TIME if call.startswith('install')][failed - 1 :]


def test_ctrl_c(machine, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    follow = machine.setup.follow
    monkeypatch.setattr(machine.setup, 'follow', interrupt)
    assert 'Run the same command again: it goes on' in machine.fails()
    monkeypatch.setattr(machine.setup, 'follow', follow)
    assert machine.make() == FIRST_TIME[1:]


def test_half_made_environment_without_python(machine):
    for name in ('bin', 'lib', 'include'):
        (machine.venv / name).mkdir(parents=True)
    assert machine.make()[0] == 'venv'


def test_half_made_environment_without_pip(machine):
    make_python(machine.venv)
    assert machine.make()[0] == 'ensurepip'


def test_python_that_is_gone(machine):
    (machine.venv / 'bin').mkdir(parents=True)
    (machine.venv / 'bin' / 'python').symlink_to('/nowhere/python3.9')
    assert f'Remove {machine.venv} and run this again' in machine.fails()


def test_folder_that_is_no_environment(machine):
    machine.venv.mkdir()
    (machine.venv / 'thesis.tex').write_text('')
    assert 'is no Python environment' in machine.fails()
    assert machine.calls == []


# mmcv: the cache, the trap, prebuilt wheels.


def test_cached_wheel_is_used(machine, capsys):
    machine.fake.cache('cp311-cp311-linux', 'torch 2.11.0')
    assert machine.make() == [call for call in FIRST_TIME if call != 'compile']
    assert 'Compiling' not in capsys.readouterr().out


@pytest.mark.parametrize(
    ('wheel', 'text', 'message'),
    [
        ('py3-none-any', '', "No module named 'mmcv._ext'"),
        ('cp311-cp311-linux', 'torch 2.9.0', 'undefined symbol'),
    ],
)
def test_bad_wheel_in_the_cache_is_replaced(machine, capsys, wheel, text, message):
    machine.fake.cache(wheel, text)
    machine.fake.cache('cp312-cp312-linux', 'of another Python')
    calls = machine.make()
    assert calls[calls.index('install mmcv') : calls.index('install runtime tests')] == [
        'install mmcv',
        'prove mmcv._ext',
        'drop onedl_mmcv-2.3.6-cp311',
        'drop onedl_mmcv-2.3.6-py3',
        'install mmcv',
        'compile',
        'prove mmcv._ext',
    ]
    first, second = [line for line in machine.arguments if 'mmcv.txt' in line]
    assert '--no-build-isolation' in first
    assert '--force-reinstall' not in first
    assert '--no-build-isolation' in second
    assert '--force-reinstall --no-deps --no-binary onedl-mmcv' in second
    assert message in capsys.readouterr().out
    cached = sorted(file.read_text() for file in (machine.tmp / 'cache').rglob('onedl_mmcv-*'))
    assert cached == ['of another Python', 'torch 2.11.0']
    assert machine.make() == []


def test_compiled_twice_in_vain(machine):
    machine.plan['compiles'] = ''
    message = machine.fails()
    assert "mmcv is installed but does not work:\nNo module named 'mmcv._ext'" in message
    assert f'Logs of pip: {machine.venv}/tokennorm_setup' in message
    assert machine.calls.count('compile') == 2


def test_mmcv_index(machine, monkeypatch):
    monkeypatch.setenv('MMCV_INDEX', 'https://wheels.example/cu128')
    assert 'compile' not in machine.make()
    (line,) = [line for line in machine.arguments if 'mmcv.txt' in line]
    assert '--only-binary onedl-mmcv' in line
    assert '--extra-index-url https://wheels.example/cu128 --find-links https://wheels.example/cu128' in line
    assert '--no-build-isolation' not in line
    monkeypatch.delenv('MMCV_INDEX')
    assert machine.make() == []


def test_index_that_failed_is_not_remembered(machine, monkeypatch):
    monkeypatch.setenv('MMCV_INDEX', 'wrong')
    machine.plan['fails'] = {'mmcv': 'ERROR: No matching distribution found for onedl-mmcv==2.3.6'}
    assert 'check TORCH_INDEX, MMCV_INDEX' in machine.fails()
    monkeypatch.delenv('MMCV_INDEX')
    machine.plan['fails'] = {}
    assert 'compile' in machine.make()


def test_prebuilt_wheel_of_another_torch(machine, monkeypatch):
    monkeypatch.setenv('MMCV_INDEX', 'wheels')
    machine.plan['prebuilt'] = 'torch 2.10.0'
    assert 'undefined symbol' in machine.fails()
    assert 'compile' not in machine.calls
    assert not any(call.startswith('drop') for call in machine.calls)


def test_flags_of_the_compiler(machine, monkeypatch):
    monkeypatch.setenv('CXXFLAGS', '-march=native')
    machine.make()
    compiler = machine.fake.compiler
    assert compiler['CFLAGS'].split() == ['-O3', '-g', '-g0']
    assert compiler['CXXFLAGS'].split() == ['-O3', '-g', '-march=native', '-g0']
    assert compiler['MAX_JOBS'] == str(machine.setup.cores())
    assert compiler['PATH'].startswith(f'{machine.venv}/bin{os.pathsep}')


def test_max_jobs_of_the_user(machine, monkeypatch):
    monkeypatch.setenv('MAX_JOBS', '1')
    machine.make()
    assert machine.fake.compiler['MAX_JOBS'] == '1'


# torch and opencv.


def test_torch_is_a_constraint_everywhere(machine):
    machine.make()
    installs = [line for line in machine.arguments if '-r' in line]
    assert len(installs) == 5
    assert all(
        '-c ' + str(ROOT / 'requirements/torch.txt') in line
        for line in installs
        if '/torch.txt' not in line.split(' -c ')[0]
    )


def test_torch_index(machine, monkeypatch):
    monkeypatch.setenv('TORCH_INDEX', 'https://torch.example/cpu')
    machine.make()
    assert '--index-url https://torch.example/cpu' in machine.arguments[0]
    assert '--force-reinstall' not in machine.arguments[0]
    assert not any('torch.example' in line for line in machine.arguments[1:])
    monkeypatch.delenv('TORCH_INDEX')
    assert machine.make() == []
    monkeypatch.setenv('TORCH_INDEX', 'https://torch.example/cu126')
    assert machine.make() == ['install torch', 'prove torch, torchvision']
    assert '--index-url https://torch.example/cu126 --force-reinstall' in machine.arguments[0]
    assert machine.make() == []
    monkeypatch.setenv('TORCH_INDEX', '')
    machine.make()
    assert '--index-url' not in machine.arguments[0]
    assert '--force-reinstall' in machine.arguments[0]


def test_opencv_without_libgl_is_put_right(machine):
    machine.change(machine.tmp / 'base', libGL='missing')
    calls = machine.make()
    start = calls.index('install opencv')
    assert calls[start : start + 4] == [
        'install opencv',
        'prove cv2',
        'install opencv-python-headless==4.12.0.88',
        'prove cv2',
    ]


def test_torch_of_somebody_is_not_replaced(machine):
    make_python(machine.venv, installed={'pip': '24', 'torch': '2.9.0+cu128'})
    assert 'has torch 2.9.0+cu128, which would be replaced by the pinned 2.11.0' in machine.fails()
    assert machine.calls == []


def test_torch_of_our_own_environment_is(machine):
    machine.make()
    machine.change(installed={**machine.world()['installed'], 'torch': '2.12.0'})
    assert machine.make()[0] == 'install torch'


def test_original_mmdet_is_not_overwritten(machine):
    make_python(machine.venv, installed={'mmdet': '3.3.0', 'mmcv': '2.1.0', 'onedl-mmcv': '2.3.6'})
    message = machine.fails()
    assert 'the original mmcv, mmdet' in message
    assert 'pip uninstall -y mmcv mmdet onedl-mmcv\n' in message


# What stops it before anything long begins.


@pytest.mark.parametrize('version', [[3, 9], [3, 14]])
def test_python_without_wheels(machine, version):
    machine.change(machine.tmp / 'base', python=version)
    message = machine.fails()
    assert f'is Python 3.{version[1]}, and the pinned packages exist for 3.10 to 3.13' in message
    assert 'make env PYTHON=python3.11' in message
    assert machine.calls == []


def test_no_ensurepip(machine, monkeypatch):
    monkeypatch.setattr(machine.setup.importlib.util, 'find_spec', lambda name: None)
    assert 'sudo apt install python3-venv' in machine.fails()


def test_no_compiler(machine, monkeypatch):
    monkeypatch.setenv('CXX', 'no-such-compiler')
    message = machine.fails()
    assert 'there is no C++ compiler (no-such-compiler)' in message
    assert 'sudo apt install build-essential' in message
    assert machine.calls == []


def test_no_headers(machine):
    (machine.tmp / 'base' / 'include' / 'Python.h').unlink()
    assert 'include/Python.h' in machine.fails()
    assert machine.calls == []


def test_no_compiler_is_needed_with_a_built_wheel(machine, monkeypatch):
    monkeypatch.setenv('CXX', 'no-such-compiler')
    machine.fake.cache('cp311-cp311-linux', 'torch 2.11.0')
    assert machine.make()[-1] == 'install -e'


def test_no_compiler_is_needed_with_an_index(machine, monkeypatch):
    monkeypatch.setenv('CXX', 'no-such-compiler')
    monkeypatch.setenv('MMCV_INDEX', 'wheels')
    assert machine.make()[-1] == 'install -e'


def test_disk_too_small(machine, monkeypatch):
    usage = shutil.disk_usage('/')
    monkeypatch.setattr(machine.setup.shutil, 'disk_usage', lambda folder: usage._replace(free=3 * 10**9))
    message = machine.fails()
    assert '3.0 GB free' in message
    assert 'VENV=, TMPDIR= and PIP_CACHE_DIR=' in message
    assert machine.calls == []


def test_disk_does_not_matter_when_all_is_installed(machine, monkeypatch):
    machine.make()
    usage = shutil.disk_usage('/')
    monkeypatch.setattr(machine.setup.shutil, 'disk_usage', lambda folder: usage._replace(free=0))
    assert machine.make() == []


def test_gpu_without_nvcc(machine, monkeypatch, capsys):
    monkeypatch.setattr(machine.setup, 'has_gpu', lambda: True)
    machine.make()
    assert 'WARNING: a GPU but no nvcc' in capsys.readouterr().out
    assert machine.fake.compiler['CUDA_VISIBLE_DEVICES'] == ''
    monkeypatch.setattr(machine.setup, 'find_nvcc', lambda: '/usr/local/cuda/bin/nvcc')
    assert machine.make() == ['install mmcv', 'prove mmcv._ext']


# What pip reports.


@pytest.mark.parametrize(
    ('output', 'advice'),
    [
        ('ERROR: Could not install packages: [Errno 28] No space left on device', 'A disk is full'),
        ("NewConnectionError('Temporary failure in name resolution')", 'A package index could not be reached'),
        ('The detected CUDA version (12.4) mismatches the version', 'CUDA_HOME='),
        ('c++: fatal error: Killed signal terminated program cc1plus', 'MAX_JOBS=1'),
        ("FileNotFoundError: No such file or directory: 'c++'", 'build-essential'),
        ('ERROR: No matching distribution found for torch==2.11.0', 'TORCH_INDEX'),
    ],
)
def test_failure_of_pip(machine, output, advice):
    machine.plan['fails'] = {'torch': output}
    message = machine.fails()
    assert output in message
    assert advice in message
    log = Path(re.search('The end of (.*):', message).group(1))
    assert output in log.read_text()


def test_failed_twice_shows_the_second_failure(machine):
    machine.plan['fails'] = {'torch': 'first'}
    machine.fails()
    machine.plan['fails'] = {'torch': 'second'}
    assert 'first' not in machine.fails()


def test_real_process(tmp_path, capsys):
    """Its output goes to the log, what it says of its progress to the screen, its failure into the message."""
    setup = load_setup()
    env = SimpleNamespace(folder=tmp_path, python=sys.executable, info={'cflags': ''})
    setup.call(env, '[1/2] good', ['-c', 'print("hello")'])
    assert 'hello' in (tmp_path / '1_2_good.log').read_text()
    assert '[1/2] good: done in 0:0' in capsys.readouterr().out
    with pytest.raises(setup.SetupError, match=r'bad failed(.*\n)*  planted'):
        setup.call(env, 'bad', ['-c', 'raise SystemExit("planted")'])


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('  [12/78] c++ -MMD -MF /tmp/a.o.d -c a.cpp', 'compiled 12/78 files'),
        ('  Downloading torch-2.11.0-cp311.whl (530.7 MB)', 'downloading torch-2.11.0-cp311.whl (530.7 MB)'),
        ('Installing collected packages: a, b', 'installing'),
        ('  Building wheel for onedl-mmcv (pyproject.toml): started', 'building onedl-mmcv'),
        ('creating build/lib/mmcv', ''),
    ],
)
def test_progress(machine, line, words):
    assert machine.setup.describe(line) == words


def test_nvcc_is_sought_where_torch_seeks_it(tmp_path, monkeypatch):
    nvcc = tmp_path / 'bin' / 'nvcc'
    nvcc.parent.mkdir()
    nvcc.write_text('#!/bin/sh\n')
    nvcc.chmod(0o755)
    monkeypatch.setenv('CUDA_HOME', str(tmp_path))
    assert load_setup().find_nvcc() == str(nvcc)
    monkeypatch.setenv('CUDA_HOME', str(tmp_path / 'nothing'))
    assert load_setup().find_nvcc() == ''


# The files around it.


def test_parses_on_old_pythons():
    tree = ast.parse((ROOT / 'tools' / 'setup_env.py').read_text(), feature_version=(3, 6))  # raises on newer syntax
    assert 'main' in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_pre_commit_has_the_pinned_ruff():
    ruff = dict(load_setup().read_pins(ROOT / 'requirements' / 'tests.txt'))['ruff']
    assert f'rev: v{ruff} ' in (ROOT / '.pre-commit-config.yaml').read_text()


@pytest.mark.parametrize('file', sorted((ROOT / 'requirements').glob('*.txt')), ids=lambda file: file.stem)
def test_requirements_are_pinned(file):
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith('#')]
    assert len(load_setup().read_pins(file)) == len(lines) > 0


@pytest.mark.skipif(not shutil.which('make'), reason='no make')
@pytest.mark.parametrize(
    ('words', 'job'),
    [
        (['demo'], '"env/bin/python" tools/demo.py'),
        (['demo', 'CONTROL=1'], '"env/bin/python" tools/demo.py --control'),
        (['test', 'PYTEST_ARGS=-k dtn'], '"env/bin/python" -m pytest -k dtn'),
        (['env'], 'python9 tools/setup_env.py --venv "env"'),
    ],
)
def test_make(words, job):
    command = ['make', '-n', '-C', str(ROOT), 'PYTHON=python9', 'VENV=env', *words]
    lines = [line for line in subprocess.check_output(command, text=True).splitlines() if 'python' in line]
    assert lines[0] == 'python9 tools/setup_env.py --venv "env"'
    assert lines[-1].strip() == job
