"""Runs tests of other projects, from their source distributions, on models with TokenNorm's layers: `make peers`.

Only timm's distribution has tests of its models. Those of mmcv, mmdet, mmpretrain and their forks have none, except
for images (arrays, drawing) in mmcv's.

The failures must be those of `expected.txt`: the exit status is 1 for another one, and for one that is gone.
"""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

TIMM = 'timm==1.0.31'
FOLDER = Path('build/peers')
MODELS = 'test_vit test_vit2 test_vit3 test_vit4 swin_tiny_patch4_window7_224 pvt_v2_b0 deit_tiny_patch16_224'
TESTS = 'forward backward forward_features forward_intermediates forward_torchscript forward_fx'

# The copied tests take this function instead of timm's.
CREATE = """

def create_model(*args, **kwargs):
    from tokennorm.replace import replace_norms

    model = timm.create_model(*args, **kwargs)
    replace_norms(model, dict(type='DTN'))
    return model
"""


def expected() -> dict[str, str]:
    """Returns the reason per test of `expected.txt`."""
    lines = Path(__file__).with_name('expected.txt').read_text(encoding='utf-8').splitlines()
    return {test.strip(): reason.strip() for test, _, reason in (line.partition('#') for line in lines) if test.strip()}


def copied_tests() -> Path:
    """Downloads the distribution, and returns the changed copy of its tests of models."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = TIMM.replace('==', '-')
    if not (FOLDER / f'{name}.tar.gz').exists():
        download = ['pip', 'download', '--quiet', '--no-deps', '--no-binary', 'timm', '--dest', FOLDER, TIMM]
        subprocess.run([sys.executable, '-m', *download], check=True)
    with tarfile.open(FOLDER / f'{name}.tar.gz') as archive:
        text = archive.extractfile(f'{name}/tests/test_models.py').read().decode()
    changed, count = re.subn(r'^from timm import .*\bcreate_model, .*$', rf'\g<0>{CREATE}', text, flags=re.MULTILINE)
    assert count == 1, 'the import of create_model was not found'
    (FOLDER / 'test_models.py').write_text(changed, encoding='utf-8')
    (FOLDER / 'pytest.ini').write_text('[pytest]\n', encoding='utf-8')  # not the options of this repository
    return FOLDER / 'test_models.py'


def main() -> None:
    file = copied_tests()
    tests = [
        f'{file}::test_model_{test}[{batch}-{model}]'
        for test in TESTS.split()
        for batch in ((2,) if test == 'backward' else (1,))
        for model in MODELS.split()
    ]
    options = ['-q', '-rA', '-n0', '-pno:cacheprovider', '-pno:warnings']
    command = [sys.executable, '-m', 'pytest', *options, '-c', FOLDER / 'pytest.ini']
    listed = subprocess.run([*command, '--collect-only', file], capture_output=True, text=True).stdout
    known = {line.rpartition('::')[2] for line in listed.splitlines()}
    tests = [test for test in tests if test.rpartition('::')[2] in known]
    output = subprocess.run([*command, '--tb=line', *tests], capture_output=True, text=True).stdout
    results = dict(reversed(found) for found in re.findall(r'^(PASSED|FAILED|ERROR) \S+::(\S+)', output, re.MULTILINE))
    failed, known = {test for test, result in results.items() if result != 'PASSED'}, expected()
    print(f'{len(results)} tests of {TIMM}: {len(results) - len(failed)} passed, {len(failed)} failed')
    for test in sorted(failed - set(known)):
        print(f'new: {test}')
    for test in sorted(set(known) - failed):
        print(f'expected to fail, but did not: {test} ({known[test]})')
    if failed - set(known) or not results:
        print(output)
    sys.exit(not results or failed != set(known))


if __name__ == '__main__':
    main()
