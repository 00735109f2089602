"""Every rule about recipes looks at every class of mmengine, mmdet and this package that it may meet, without an error.

Each class is built and takes the place of its kind in a small recipe. What needs a package that is not installed, or a
file that only its own data has, is built without its `__init__`.
"""

import inspect
import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import mmdet
import pytest
import torch
from mmdet.datasets import ConcatDataset
from mmdet.utils import register_all_modules
from mmengine import registry as upstream
from mmengine.dataset import DefaultSampler
from mmengine.registry import init_default_scope
from mmengine.visualization import Visualizer
from torch.utils.data import DataLoader

from tests.helpers.recipes import build_recipe, copy_of
from tokennorm.base.messages import UserError
from tokennorm.checkpoints import Checkpoint
from tokennorm.config.build_errors import build_errors
from tokennorm.engine.lint import lint
from tokennorm.engine.rules.built import PHASES
from tokennorm.findings import JUDGEMENTS, Findings, judging

register_all_modules(init_default_scope=False)


def classes(name):
    """Returns the classes of a registry of mmengine, mmdet and this package, of which every fourth is fast."""
    registry = getattr(upstream, name)
    children = [registry.children[scope] for scope in ('mmdet', 'tokennorm') if scope in registry.children]
    for child in children:
        child.import_from_location()
    found = {f'{one.scope}.{key}': cls for one in (registry, *children) for key, cls in one.module_dict.items()}
    studied = [key for key, cls in found.items() if cls.__module__.startswith('experiments.')]  # by other tests
    concrete = [(key, cls) for key, cls in found.items() if key not in studied and not inspect.isabstract(cls)]
    return [pytest.param(cls, id=key, marks=pytest.mark.slow if i % 4 else ()) for i, (key, cls) in enumerate(concrete)]


def made(cls, **given):
    """Returns an object with those of these arguments that its class knows."""
    if any(one.kind is one.VAR_KEYWORD for one in inspect.signature(cls.__init__).parameters.values()):
        known = {key for base in cls.__mro__[:-1] for key in inspect.signature(base.__init__).parameters}
    else:
        known = set(inspect.signature(cls.__init__).parameters)
    try:
        return cls(**{key: value for key, value in given.items() if key in known})
    except (ImportError, RuntimeError) as error:
        if 'install' in str(error) or isinstance(error, ImportError):
            pytest.skip(f'{error}')
        raise


@pytest.fixture(scope='module')
def recipe(demo_data, tmp_path_factory):
    init_default_scope('mmdet')
    return build_recipe(demo_data, tmp_path_factory.mktemp('recipe'))


@pytest.fixture
def built(recipe):
    init_default_scope('mmdet')
    copied = copy_of(recipe)
    copied.checkpoint = Checkpoint('a.pth', dict(state_dict={}, meta={}))
    return copied


def judged(built, with_samples=True):
    """Returns the codes of what all rules find. A rule may refuse, or name what cannot be built."""
    with judging(Findings()) as found:
        phases = [
            phase for phase in PHASES if with_samples or phase != 'samples'
        ]  # datasets with files on this machine
        for rule, find in (judgement for phase in phases for judgement in JUDGEMENTS[phase]):
            with suppress(UserError), build_errors():
                for line in find(built):
                    rule.report(*line)
    return {one.code for one in found}


OWN_FILES = {'DODDataset', 'DSDLDetDataset', 'ODVGDataset', 'OpenImagesChallengeDataset', 'V3DetDataset'}
READ = {'CocoDataset', 'CityscapesDataset', 'DeepFashionDataset', 'iSAIDDataset', 'Objects365V1Dataset'}
DATA = dict(ann_file='annotations/val.json', data_prefix=dict(img='images/val/'), split_file='', label_file='')
DATA |= dict(meta_file='', hierarchy_file='', dataset_version='2019', split='train', times=2, oversample_thr=0.1)


@pytest.mark.parametrize('cls', classes('DATASETS'))
def test_datasets_and_their_wrappers(built, demo_data, cls):
    if cls.__name__ in OWN_FILES:
        pytest.skip('it needs files or a package of its own')
    inner, is_lazy = built.data['train'], cls.__name__ not in READ
    place = dict(data_root=str(demo_data), pipeline=[], lazy_init=is_lazy, metainfo=dict(classes=('star', 'disk')))
    dataset = made(cls, **DATA, **place, dataset=inner, datasets=[inner, inner])
    if is_wrapper := bool({'dataset', 'datasets'} & vars(dataset).keys()):
        dataset.full_init()
    built.data |= dict(train=dataset, val=dataset)
    for split in ('train', 'val'):
        built.cfg[f'{split}_dataloader'].dataset.type = cls.__name__
    built.loops['train'] = SimpleNamespace(dataloader=DataLoader(range(4)), max_iters=2)
    judged(built, with_samples=is_wrapper or not is_lazy)


@pytest.mark.parametrize('cls', classes('DATA_SAMPLERS'))
def test_samplers_and_loaders(built, cls):
    if cls.__name__ == 'TrackImgSampler':
        pytest.skip('it is for videos')
    dataset = built.data['train']
    if cls.__name__ != 'ClassAwareSampler':  # of one file
        dataset = ConcatDataset([dataset] * 2)
    batch = [2, 2] if cls.__name__ == 'MultiDataAspectRatioBatchSampler' else 2
    given = dict(dataset=dataset, batch_size=batch, dataset_size=[4, 4], dataset_ratio=[1, 1], source_ratio=[1, 1])
    sampler = made(cls, sampler=DefaultSampler(dataset), num_datasets=2, **given)
    batches = dict(batch_sampler=sampler) if 'Batch' in cls.__name__ else dict(sampler=sampler, batch_size=2)
    built.loops['train'] = SimpleNamespace(dataloader=DataLoader(dataset, **batches), max_iters=2)
    judged(built)


@pytest.mark.parametrize('cls', classes('METRICS'))
def test_metrics(built, demo_data, tmp_path, cls):
    if cls.__name__ == 'CocoOccludedSeparatedMetric':
        pytest.skip('it needs a file of its own')
    content = json.loads((demo_data / 'annotations' / 'val.json').read_text())
    for image in content['images']:
        image['file_name'] = f'other_{image["file_name"]}'
    (tmp_path / 'other.json').write_text(json.dumps(content))
    places = dict.fromkeys(('outfile_prefix', 'out_file_path', 'outfile_path', 'output_dir'), str(tmp_path / 'a.pkl'))
    metric = made(cls, ann_file=str(tmp_path / 'other.json'), img_prefix='', **places)
    built.metrics = dict(train=[metric], val=[metric])
    found = judged(built)
    assert ('evaluator-images' in found) == (getattr(metric, '_coco_api', None) is not None)


SEARCH = dict(step=0, max_step=1, search_interval=1, exp_rate=0.5, init_alphas=0.1, mmin=1, mmax=2, num_branches=2)
HOOK = dict(monitor='coco/bbox_mAP', tta_cfg={}, switch_epoch=2, switch_pipeline=[], config=dict(search=SEARCH))


@pytest.mark.parametrize('cls', classes('HOOKS'))
def test_hooks(built, cls):
    Visualizer.get_instance('rules')  # which some ask for
    built.hooks = [made(cls, **HOOK)]
    judged(built)


@pytest.mark.parametrize('cls', classes('LOOPS'))
def test_loops(built, cls):
    loader, runner = DataLoader(built.data['train']), SimpleNamespace(visualizer=SimpleNamespace())
    evaluator = built.loops['val'].evaluator
    loop = made(cls, runner=runner, dataloader=loader, max_epochs=2, max_iters=2, evaluator=evaluator)
    built.loops['train' if 'Train' in cls.__name__ else 'val'] = loop
    judged(built)


@pytest.mark.parametrize('cls', classes('OPTIM_WRAPPER_CONSTRUCTORS'))
def test_constructors_of_optimizers(built, cls):
    rules = dict(decay_rate=0.9, decay_type='layer_wise', num_layers=12, custom_keys=dict(a_b=dict(lr_mult=2.0)))
    built.cfg.optim_wrapper = dict(constructor=cls, optimizer=dict(type='SGD', lr=0.1), paramwise_cfg=rules)
    judged(built)


@pytest.mark.parametrize('cls', classes('PARAM_SCHEDULERS'))
def test_schedulers(built, cls):
    built.schedulers = [dict(type=cls.__name__), dict(type=cls, begin=0, end=500, by_epoch=False)]
    judged(built)


CONFIGS = Path(mmdet.__file__).parent / '.mim' / 'configs'
DOWNLOADS = {'lad', 'ld', 'timm_example'}  # of weights, when a model is built
REPEATED = {  # whose models, data, hooks and schedules have no class that configs of other folders lack
    *('atss', 'cascade_rcnn', 'cascade_rpn', 'dcn', 'fast_rcnn', 'faster_rcnn', 'gn', 'grounding_dino'),
    *('guided_anchoring', 'lvis', 'mask_rcnn', 'nas_fpn', 'resnet_strikes_back', 'retinanet', 'scratch'),
    *('selfsup_pretrain', 'yolox'),
}
FOLDERS = {path.relative_to(CONFIGS).parts[0] for path in CONFIGS.glob('*/**/*.py')} - {'_base_', 'common'}


@pytest.mark.slow
@pytest.mark.parametrize('folder', sorted(FOLDERS - DOWNLOADS - REPEATED))
def test_models_of_mmdet(folder):
    """Detectors, heads, necks and preprocessors of one config of each folder, whose tensors have no values."""
    path = min(CONFIGS.glob(f'{folder}/**/*.py'))
    try:
        with torch.device('meta'):
            found, _, _ = lint(f'mmdet::{path.relative_to(CONFIGS)}')
    except UserError as error:  # of packages and files that are missing, and of parts that compute with values
        pytest.skip(f'{error}')
    assert not found.of('error')
