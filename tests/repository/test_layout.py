"""A module of the package has its test where one looks for it: tests/<room>/test_<module>.py."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRIVIAL = {'__main__', 'base/ranks', 'base/type_name', 'models/registered', 'version'}
ELSEWHERE = {  # modules that are tested with others of their kind
    **dict.fromkeys(['checkpoints/swin', 'checkpoints/vit'], 'checkpoints/test_layouts'),
    **dict.fromkeys(['export/dense', 'export/nms'], 'export/test_detector'),
    **dict.fromkeys(
        [
            *('norms/derf', 'norms/dynamic_tanh', 'norms/group_norm', 'norms/instance_norm', 'norms/layer_norm'),
            *('norms/local_layer_norm', 'norms/rms_norm', 'norms/scale_norm', 'norms/seed_norm'),
        ],
        'norms/test_formulas',
    ),
    **{
        f'commands/{name}': 'commands/test_functions'
        for name in (
            'benchmark',
            'check',
            'compare',
            'export',
            'predict',
            'publish',
            'result',
            'split',
            'test',
            'train',
        )
    },
    **dict.fromkeys(['commands/checks', 'commands/opening'], 'commands/test_wrong_uses'),
    'commands/importing': 'cli/test_command',
    'models/masked_detectors': 'replace/test_mask_padding',
    'cli/compare': 'report/test_compare',
    'cli/split': 'datasets/test_splitting',
    'engine/resume/random_state': 'engine/resume/test_processes',
    'evaluation/results': 'evaluation/test_coco_metric',
    **{f'engine/rules/{name}': 'rules/test_training_rules' for name in ('built', 'data', 'model', 'training')},
    **dict.fromkeys(['datasets/coco/columns', 'datasets/coco/rules'], 'rules/test_data_rules'),
    **{f'datasets/coco/{name}': 'datasets/coco/test_inspection' for name in ('entries', 'masks')},
    'datasets/cvat': 'datasets/test_splits',
    'datasets/dialects': 'datasets/coco/test_normalizing',
    'layers/layers': 'backbones/test_bad_arguments',
    'ops/dtn_eager': 'ops/test_dtn',
    **dict.fromkeys(['cli/rules', 'findings/elsewhere'], 'findings/test_findings'),
}


def modules():
    """Paths of the package's modules below projects/tokennorm without the suffix; of packages, those with functions."""
    package = ROOT / 'projects' / 'tokennorm'
    for path in sorted(package.rglob('*.py')):
        name = path.relative_to(package).with_suffix('')
        if name.parts[0].startswith('.'):
            continue
        if name.stem != '__init__':
            yield name.as_posix()
        elif '\ndef ' in path.read_text() and name.parent.name:
            yield (name.parent / name.parent.name).as_posix()


def place(module):
    room, slash, name = module.rpartition('/')
    return f'{room}{slash}test_{name}'


def test_each_module_has_its_test():
    known = set(modules())
    assert len(known) > 150
    missing, unknown = [], (TRIVIAL | ELSEWHERE.keys()) - known
    for name in sorted(known - TRIVIAL):
        test = ROOT / 'tests' / f'{ELSEWHERE.get(name) or place(name)}.py'
        if not test.is_file():
            missing.append(f'{name}: {test.relative_to(ROOT)}')
    assert (missing, sorted(unknown)) == ([], [])


def test_exceptions_are_still_needed():
    assert [name for name in ELSEWHERE if (ROOT / 'tests' / f'{place(name)}.py').is_file()] == []
