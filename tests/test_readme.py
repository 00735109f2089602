"""What the README shows works as it stands there, and what it and the pages in docs/ name exists."""

import re
from pathlib import Path

import pytest
import torch
from mmdet.utils import register_all_modules
from mmengine import Config, DefaultScope
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / 'README.md').read_text()
CONFIG, SEGMENTOR, NORM, REPLACE = re.findall(r'```python\n(.*?)```', README, re.DOTALL)


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


def test_the_backbone_of_the_segmentor_builds():
    names = {}
    exec(SEGMENTOR, names)
    cfg = {key: value for key, value in names['model']['backbone'].items() if key != '_delete_'}
    assert [entry['num_chs'] for entry in MODELS.build(cfg).feature_info] == [96, 192, 384, 768]


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


@pytest.mark.parametrize(
    'page', ['README.md', *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob('docs/**/*.md'))]
)
def test_the_paths_it_names_exist(page):
    text = (ROOT / page).read_text()
    links = [(ROOT / page).parent / link for link in re.findall(r'\]\(((?!https?:)[^)]+)\)', text)]
    files = [ROOT / name for name in re.findall(r'((?:tools|benchmarks)/\w+\.(?:py|sh))', text)]
    assert [path for path in (*links, *files) if not path.exists()] == []
