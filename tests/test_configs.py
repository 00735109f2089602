"""Every config builds, twins differ in the norm and the stem alone, and weight decay goes where it should."""

import re
from pathlib import Path

import mmdet.utils
import mmpretrain.utils
import pytest
from mmengine import Config, DefaultScope
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS

ROOT = Path(__file__).resolve().parents[1] / 'configs'
CONFIGS = sorted(path for path in ROOT.glob('*/*.py') if not path.parent.name.startswith('_'))
LN_STARTS = [path for path in CONFIGS if '-lnstart' in path.name]
TWINS = [path for path in CONFIGS if re.search(r'-(dtn|dpn)', path.name) and path not in LN_STARTS]
DETECTORS = [path for path in CONFIGS if path.parent.name != 'imagenet']
NORM_AND_STEM = dict(dtn='model.backbone.token_norm_cfg.', dpn='model.backbone.stem_cfg.')
QUICK = re.compile('pvt-mini|pvt-t|pvt-tiny')  # the slow tests build the others as well


def name_of(path):
    return str(path.relative_to(ROOT))


def quick_first(paths):
    return [
        pytest.param(path, id=name_of(path), marks=() if QUICK.search(path.name) else pytest.mark.slow)
        for path in paths
    ]


def build_model(cfg):
    mmdet.utils.register_all_modules(init_default_scope=False)
    mmpretrain.utils.register_all_modules(init_default_scope=False)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return MODELS.build(cfg.model)


def flatten(node, name=''):
    if isinstance(node, dict):
        return {
            k: v for key, value in node.items() for k, v in flatten(value, f'{name}.{key}' if name else key).items()
        }
    return {name: node}


def control_of(path):
    return path.with_name(re.sub('-(dtn|dpn)', '', path.name))


@pytest.mark.parametrize('path', quick_first(CONFIGS))
def test_builds_a_backbone_of_ours_with_the_norms_of_its_name(path):
    cfg = Config.fromfile(path)
    backbone = build_model(cfg).backbone
    kinds = {type(module).__name__ for module in backbone.modules()}
    assert type(backbone).__module__.startswith('tokennorm.')
    assert ('DTN' in kinds, 'DualPatchEmbed' in kinds) == ('-dtn' in path.name, '-dpn' in path.name)


@pytest.mark.parametrize('path', DETECTORS, ids=name_of)
def test_heads_count_the_classes_of_the_dataset(path):
    cfg = Config.fromfile(path)
    dataset = cfg.train_dataloader.dataset
    classes = len(dataset.metainfo['classes']) if 'metainfo' in dataset else 80
    counts = {value for key, value in flatten(cfg.model.to_dict()).items() if key.endswith('num_classes')}
    assert counts == {classes}


@pytest.mark.parametrize('path', TWINS, ids=name_of)
def test_twins_differ_in_norm_stem_and_starting_weights_alone(path):
    twin = flatten(Config.fromfile(path).to_dict())
    control = flatten(Config.fromfile(control_of(path)).to_dict())
    different = {key for key in twin | control if twin.get(key) != control.get(key)}
    different -= {'work_dir', 'model.backbone.init_cfg.checkpoint'}
    for part, prefix in NORM_AND_STEM.items():
        of_part = {key for key in different if key.startswith(prefix)}
        assert bool(of_part) == (f'-{part}' in path.name)
        different -= of_part
    assert different == set()
    if '-dtn' in path.name:
        assert twin['model.backbone.token_norm_cfg.type'] == 'DTN'
    if '-dpn' in path.name:
        assert twin['model.backbone.stem_cfg.type'] == 'DualPatchEmbed'


@pytest.mark.parametrize('path', LN_STARTS, ids=name_of)
def test_the_layer_norm_start_differs_from_its_baseline_in_norm_and_lambda_s_rate(path):
    start = flatten(Config.fromfile(path).to_dict())
    control = flatten(Config.fromfile(path.with_name(path.name.replace('-dtn-lnstart', ''))).to_dict())
    rate = 'optim_wrapper.paramwise_cfg.custom_keys.'
    assert {key: value for key, value in start.items() if control.get(key) != value} == {
        'model.backbone.token_norm_cfg.type': 'DTN',
        'model.backbone.token_norm_cfg.start': 'layer_norm',
        'model.backbone.token_norm_cfg.eps': 1e-6,
        **{f'{rate}{logit}.lr_mult': 10 for logit in ('mean_logit', 'var_logit')},
        **{f'{rate}{logit}.decay_mult': 0 for logit in ('mean_logit', 'var_logit')},
    }


@pytest.mark.parametrize('path', sorted((ROOT / 'pvt').glob('*.py')), ids=name_of)
def test_detectors_start_from_what_fits_them(path):
    """The LayerNorm baselines from the authors' weights, the others from what one of our configs makes."""
    backbone = Config.fromfile(path).model.backbone
    checkpoint = Path(backbone.init_cfg.checkpoint)
    if path not in TWINS:
        address = f'https://github.com/whai362/PVT/releases/download/v2/pvt_{backbone.arch}.pth'
        assert backbone.init_cfg.checkpoint == address
        return
    pretraining = Config.fromfile(ROOT / 'imagenet' / f'{checkpoint.parent.name}.py')
    assert checkpoint.parent.parent == Path('work_dirs')
    assert checkpoint.name == f'epoch_{pretraining.train_cfg.max_epochs}.pth'
    for key in ('type', 'arch', 'token_norm_cfg', 'stem_cfg', 'norm_cfg'):
        assert backbone.get(key) == pretraining.model.backbone.get(key), key


@pytest.mark.parametrize('path', quick_first(CONFIGS))
def test_norms_positions_and_lambdas_get_no_weight_decay(path):
    cfg = Config.fromfile(path)
    model = build_model(cfg)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    decay = {id(p): group['weight_decay'] for group in groups for p in group['params']}
    decayed = {name for name, p in model.named_parameters() if decay.get(id(p), 0) > 0}
    parts = ['norm', 'pos_embed', 'cls_token', 'mean_logit', 'var_logit', 'position', '.gn.', '.bn.']
    if path.parent.name != 'pvt':
        parts.append('bias')  # which the PVT authors' detectors do decay
    assert {name for name in decayed if any(part in name for part in parts)} == set()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert {name for name, p in trained.items() if p.ndim > 1 and name not in decayed} == {
        name for name in trained if name.endswith(('pos_embed', 'position', 'cls_token'))
    }
    base = cfg.optim_wrapper.optimizer.weight_decay
    assert {decay[id(p)] for name, p in trained.items() if name in decayed} == {base}


@pytest.mark.parametrize('path', sorted((ROOT / 'pvt').glob('*.py')), ids=name_of)
def test_hyperparameters_are_those_of_the_pvt_paper(path):
    cfg = Config.fromfile(path)
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == ('AdamW', 1e-4, 1e-4)
    assert (cfg.train_dataloader.batch_size, cfg.train_cfg.max_epochs) == (2, 12)
    assert cfg.auto_scale_lr.base_batch_size == 16
