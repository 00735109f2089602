"""A module of the package has its test where one looks for it: tests/<room>/test_<module>.py."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'projects' / 'tokennorm'
TRIVIAL = {'__main__', 'base/ranks', 'base/type_name', 'models/registered', 'version'}
# Modules without a test of their own that others list or import, in the same room: they are tested as these are. The
# first three are registries, whose test is for each of their members.
TOGETHER = {
    'norms/__init__': 'norms/test_contract',  # and their values in test_formulas
    'engine/rules/__init__': 'rules/test_training_rules',
    'cli/main': 'cli/test_main',
    'checkpoints/__init__': 'checkpoints/test_layouts',
    'commands/predict': 'commands/test_checks',
    'datasets/coco/inspection': 'rules/test_data_rules',
    'datasets/coco/normalizing': 'datasets/coco/test_normalizing',
    'datasets/discovery': 'datasets/test_discovery',
    'evaluation/coco_metric': 'evaluation/test_coco_metric',
    'export/whole_detector': 'export/test_whole_detector',
    'export/two_stage': 'export/test_two_stage',
    'ops/dtn': 'ops/test_dtn',
}
ELSEWHERE = {  # a function is tested where its use is
    'commands/importing': 'cli/test_command',  # what a user sees where a package is missing
    'findings/elsewhere': 'rules/test_training_rules',
    'models/masked_detectors': 'replace/test_mask_padding',  # two lines on what is tested there
}


def modules():
    """Paths of the package's modules below projects/tokennorm without the suffix; of packages, those with functions."""
    for path in sorted(PACKAGE.rglob('*.py')):
        name = path.relative_to(PACKAGE).with_suffix('')
        if name.parts[0].startswith('.'):
            continue
        if name.stem != '__init__':
            yield name.as_posix()
        elif '\ndef ' in path.read_text() and name.parent.name:
            yield (name.parent / name.parent.name).as_posix()


def place(module):
    room, slash, name = module.rpartition('/')
    return f'{room}{slash}test_{name}'


def places_of(module):
    """The tests that may be a module's: its own, that of what is made of it, and the functions of commands."""
    room, _, name = module.rpartition('/')
    yield place(module)
    if module in ELSEWHERE:
        yield ELSEWHERE[module]
    if room == 'commands' and f'\ndef test_{name}(' in (ROOT / 'tests' / 'commands' / 'test_functions.py').read_text():
        yield 'commands/test_functions'
    listed = re.compile(rf'\.{name} import|^from [\w.]+ import .*\b{name}\b|^    {name}=', re.MULTILINE)
    for other, test in TOGETHER.items():
        if other.rpartition('/')[0] == room and listed.search((PACKAGE / f'{other}.py').read_text()):
            yield test


def test_each_module_has_its_test():
    known = set(modules())
    assert len(known) > 150
    assert (TRIVIAL | ELSEWHERE.keys()) - known == set()
    for module in sorted(known - TRIVIAL):
        assert any((ROOT / 'tests' / f'{test}.py').is_file() for test in places_of(module)), (
            f'{module}.py has no test: write tests/{place(module)}.py. If it is a member of a registry that another '
            'test is parametrized over, or a part of one module, see TOGETHER in tests/repository/test_layout.py'
        )


def test_exceptions_are_still_needed():
    without = [module for module in modules() if not (ROOT / 'tests' / f'{place(module)}.py').is_file()]
    assert ELSEWHERE.keys() - without == set()
    used = {test for module in without for test in places_of(module)}
    assert set(TOGETHER.values()) - used == set()


def test_slow_tests_of_the_repository_would_be_run_by_nobody():
    """`make lint` runs the fast tests of this folder, and `make test` none, whatever its PYTEST_ARGS."""
    files = [path for path in Path(__file__).parent.glob('test_*.py') if path != Path(__file__)]
    assert [path.name for path in files if 'mark.slow' in path.read_text()] == []
