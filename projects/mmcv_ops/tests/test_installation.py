"""The file `mmcv/_ext.py` in real environments: installed and removed with pip and uv, before and after mmcv."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope='module')
def wheels(tmp_path_factory):
    """This distribution's wheel, and stand-ins of onedl-mmcv and mmcv-lite, in two versions, with one file."""
    folder = tmp_path_factory.mktemp('wheels')
    source = shutil.copytree(PROJECT, folder / 'source', ignore=shutil.ignore_patterns('build', '*.egg-info', 'tests'))
    build = [sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps', '--wheel-dir', str(folder), str(source)]
    subprocess.run(build, check=True)
    for name in ('onedl_mmcv', 'mmcv_lite'):
        for version in ('1.0', '1.1'):
            info = f'{name}-{version}.dist-info'
            contents = {
                'mmcv/__init__.py': f'__version__ = {version!r}\n',
                f'{info}/METADATA': f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n',
                f'{info}/WHEEL': 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
            }
            contents[f'{info}/RECORD'] = ''.join(f'{path},,\n' for path in [*contents, f'{info}/RECORD'])
            with zipfile.ZipFile(folder / f'{name}-{version}-py3-none-any.whl', 'w') as wheel:
                for path, text in contents.items():
                    wheel.writestr(path, text)
    return folder


class Environment:
    """A fresh environment and its installer. The requirements of this distribution are not installed."""

    def __init__(self, folder, wheels, tool):
        self.wheels, self.python = wheels, folder / 'bin' / 'python'
        options = ['--without-pip'] if tool == 'uv' else []
        subprocess.run([sys.executable, '-m', 'venv', *options, str(folder)], check=True)
        self.site = Path(self.run('import site; print(site.getsitepackages()[0])'))
        self.files = self.listing()
        if tool == 'uv':
            uv = shutil.which('uv') or shutil.which('uv', path=str(Path(sys.executable).parent))
            if uv is None:
                pytest.skip('uv is not installed')
            self.installer, self.target, self.yes = [uv, 'pip'], ['--python', str(self.python)], []
        else:
            self.installer, self.target, self.yes = [str(self.python), '-m', 'pip'], [], ['-y']

    def run(self, code):
        env = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
        return subprocess.run(
            [self.python, '-c', code], check=True, capture_output=True, text=True, env=env, cwd=self.wheels
        ).stdout.strip()

    def pip(self, command, *args):
        command = [*self.installer, command, *self.target, *args]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.wheels).stdout

    def install(self, pattern, *args):
        (wheel,) = self.wheels.glob(f'{pattern}*.whl')
        self.pip('install', '--no-deps', *args, str(wheel))

    def uninstall(self, name):
        self.pip('uninstall', *self.yes, name)

    def listing(self):
        return {str(p.relative_to(self.site)) for p in self.site.rglob('*') if '__pycache__' not in p.parts}

    def ext(self):
        """Returns the file that `import mmcv._ext` would load, and compiles it as the first import does."""
        self.run(f'import compileall; compileall.compile_dir({str(self.site / "mmcv")!r}, quiet=1)')
        found = self.run("import importlib.util as u; s = u.find_spec('mmcv._ext'); print(s.origin if s else '')")
        return Path(found).name


@pytest.fixture(params=['pip', 'uv'])
def environment(request, tmp_path, wheels):
    return Environment(tmp_path / 'env', wheels, request.param)


@pytest.mark.parametrize(('mmcv', 'ours_first'), [('onedl_mmcv', False), ('mmcv_lite', True)])
def test_install_reinstall_and_uninstall(environment, mmcv, ours_first):
    if ours_first:
        environment.install('mmcv_ops_torchvision')
        # Without mmcv, `import mmcv` finds a folder without content.
        assert environment.run('import mmcv; print(mmcv.__file__)') == 'None'
        environment.install(f'{mmcv}-1.0')
    else:
        environment.install(f'{mmcv}-1.0')
        environment.install('mmcv_ops_torchvision')
    assert environment.ext() == '_ext.py'
    assert environment.run('import mmcv; print(mmcv.__version__)') == '1.0'
    assert 'mmcv-ops-torchvision' in environment.pip('list')

    environment.install(f'{mmcv}-1.0', '--force-reinstall')
    assert environment.ext() == '_ext.py'
    environment.install(f'{mmcv}-1.1')
    assert environment.ext() == '_ext.py'
    assert environment.run('import mmcv; print(mmcv.__version__)') == '1.1'

    environment.uninstall('mmcv-ops-torchvision')
    assert environment.ext() == ''
    assert not list((environment.site / 'mmcv').rglob('_ext*'))
    assert not (environment.site / 'mmcv_ops').exists()
    environment.uninstall(mmcv.replace('_', '-'))
    assert environment.listing() == environment.files


def test_compiled_extension_takes_precedence(environment):
    """Python looks for extension modules before it looks for source files."""
    environment.install('onedl_mmcv-1.0')
    environment.install('mmcv_ops_torchvision')
    suffix = environment.run('import importlib.machinery as m; print(m.EXTENSION_SUFFIXES[0])')
    compiled = environment.site / 'mmcv' / f'_ext{suffix}'
    compiled.touch()
    assert environment.ext() == compiled.name
    compiled.unlink()
    environment.uninstall('onedl-mmcv')  # before the file in its folder
    environment.uninstall('mmcv-ops-torchvision')
    assert environment.listing() == environment.files


def test_folders_are_named_where_mmcv_is_elsewhere(wheels, tmp_path):
    """As in a virtual environment over the system's packages, or with `pip install --user`."""
    folders = [tmp_path / name for name in ('mmcv', 'ops')]
    for pattern, folder in zip(('mmcv_lite-1.1', 'mmcv_ops_torchvision'), folders, strict=True):
        (wheel,) = wheels.glob(f'{pattern}*.whl')
        with zipfile.ZipFile(wheel) as content:
            content.extractall(folder)

    def said(*paths):
        places = os.pathsep.join(map(str, [*paths, *sys.path[1:]]))
        command = [sys.executable, '-S', '-m', 'mmcv_ops']
        return subprocess.run(command, capture_output=True, text=True, env={'PYTHONPATH': places}, cwd=tmp_path).stdout

    apart = said(*folders)
    assert "No module named 'mmcv._ext'" in apart
    assert f'mmcv is in {folders[0]}, and mmcv_ops in {folders[1]}: both must be in one folder' in apart
    assert 'pip install --force-reinstall --no-deps mmcv_lite==1.1' in apart
    shutil.copytree(folders[0], folders[1], dirs_exist_ok=True)
    (folders[1] / 'mmcv' / '_ext.py').unlink()
    assert f'mmcv is in {folders[1]}, without mmcv/_ext.py' in said(folders[1])
