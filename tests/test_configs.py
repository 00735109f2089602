"""Every config builds, twins differ in the norm and the stem alone, and weight decay goes where it should."""

from pathlib import Path

import pytest
from mmdet.utils import register_all_modules
from mmengine import Config, DefaultScope
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS

ROOT = Path(__file__).resolve().parents[1] / 'configs'
CONFIGS = sorted(path for path in ROOT.glob('*/*.py') if not path.parent.name.startswith('_'))
TWINS = [path for path in CONFIGS if '-dtn-dpn' in path.name]


def name_of(path):
    return str(path.relative_to(ROOT))


def build_model(cfg):
    register_all_modules(init_default_scope=False)
    with DefaultScope.overwrite_default_scope('mmdet'):
        return MODELS.build(cfg.model)


def flatten(node, name=''):
    if isinstance(node, dict):
        return {
            k: v for key, value in node.items() for k, v in flatten(value, f'{name}.{key}' if name else key).items()
        }
    return {name: node}


@pytest.mark.parametrize('path', CONFIGS, ids=name_of)
def test_builds_with_as_many_classes_as_its_dataset(path):
    cfg = Config.fromfile(path)
    model = build_model(cfg)
    assert model.bbox_head.num_classes == len(cfg.train_dataloader.dataset.metainfo['classes'])
    assert type(model.backbone).__module__.startswith('tokennorm.')


@pytest.mark.parametrize('path', TWINS, ids=name_of)
def test_twins_differ_in_norm_and_stem_alone(path):
    twin = flatten(Config.fromfile(path).to_dict())
    control = flatten(Config.fromfile(path.with_name(path.name.replace('-dtn-dpn', ''))).to_dict())
    different = {key for key in twin | control if twin.get(key) != control.get(key)}
    norm_and_stem = ('model.backbone.token_norm_cfg.', 'model.backbone.stem_cfg.')
    assert {key for key in different if not key.startswith(norm_and_stem)} == {'work_dir'}
    assert twin['model.backbone.token_norm_cfg.type'] == 'DTN'
    assert twin['model.backbone.stem_cfg.type'] == 'DualPatchEmbed'


@pytest.mark.parametrize('path', CONFIGS, ids=name_of)
def test_norms_positions_and_lambdas_get_no_weight_decay(path):
    cfg = Config.fromfile(path)
    model = build_model(cfg)
    with DefaultScope.overwrite_default_scope('mmdet'):
        groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    decay = {id(p): group['weight_decay'] for group in groups for p in group['params']}
    decayed = {name for name, p in model.named_parameters() if decay[id(p)] > 0}
    parts = ('norm', 'pos_embed', 'cls_token', 'logit', 'position', '.gn.', 'bias')
    assert {name for name in decayed if any(part in name for part in parts)} == set()
    assert {name for name, p in model.named_parameters() if p.ndim > 1 and name not in decayed} == {
        name for name, _ in model.named_parameters() if name.endswith(('pos_embed', 'position'))
    }
    base = cfg.optim_wrapper.optimizer.weight_decay
    assert {decay[id(p)] for name, p in model.named_parameters() if name in decayed} == {base}
