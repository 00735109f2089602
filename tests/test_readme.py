"""What the README shows works as it stands there."""

import re
from pathlib import Path

import torch
from mmdet.utils import register_all_modules
from mmengine import Config, DefaultScope
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS

README = (Path(__file__).resolve().parents[1] / 'README.md').read_text()
CONFIG, NORM, REPLACE = re.findall(r'```python\n(.*?)```', README, re.DOTALL)


def test_the_config_builds_with_dtn_and_dpn(tmp_path):
    (tmp_path / 'config.py').write_text(CONFIG)
    cfg = Config.fromfile(tmp_path / 'config.py')
    register_all_modules(init_default_scope=False)
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg.model)
        groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    decay = {id(p): group['weight_decay'] for group in groups for p in group['params']}
    decays = {name: decay[id(p)] for name, p in model.backbone.named_parameters()}
    assert decays['stages.0.blocks.0.norm1.position'] == decays['stages.0.pos_embed'] == 0
    assert decays['stages.0.patch_embed.proj.weight'] == 1e-4
    kinds = [type(module).__name__ for module in model.backbone.modules()]
    assert kinds.count('DTN') == 12
    assert kinds.count('DualPatchEmbed') == 1


def test_the_norm_runs():
    names = {'x': torch.randn(2, 14, 14, 384)}
    exec(NORM, names)
    assert names['y'].shape == names['x'].shape
    assert not torch.allclose(names['y'], torch.nn.functional.layer_norm(names['x'], (384,)), atol=1e-3)


def test_replacing_runs():
    names = {}
    exec(REPLACE, names)
    kinds = [type(module).__name__ for module in names['model'].modules()]
    assert kinds.count('DTN') == 20
    assert kinds.count('DualPatchEmbed') == 1
    names['model'](torch.randn(1, 3, 224, 224))


def test_the_paths_it_names_exist():
    root = Path(__file__).resolve().parents[1]
    links = re.findall(r'\]\(((?!https?:)[^)]+)\)', README) + re.findall(r'(tools/\w+\.py)', README)
    assert [link for link in links if not (root / link).exists()] == []
