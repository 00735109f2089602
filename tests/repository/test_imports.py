"""Imports: the layers of the package, what importing a part of it loads, and scripts without any OpenMMLab package."""

import json
import subprocess
import sys

import pytest

# Imports and runs one part after another, and prints which third-party packages each one adds.
PROBE = """
import json, sys
added, seen = {}, set(sys.stdlib_module_names)

def note(part):
    names = {name.split('.')[0] for name in sys.modules if not name.startswith('_')}
    added[part] = sorted(names - seen)
    seen.update(names)

import torch, einops
from torch import nn
note('torch einops')

import tokennorm
from tokennorm.norms import DTN

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attn = DTN(16, num_heads=4), nn.MultiheadAttention(16, 4, batch_first=True)
    def forward(self, x):
        tokens = self.norm(x).flatten(1, 2)
        return x + self.attn(tokens, tokens, tokens)[0].view(x.shape)

block, x = Block(), torch.randn(2, 5, 7, 16)
block(x).square().mean().backward()
assert all(p.grad is not None for p in block.norm.parameters())
note('tokennorm.norms')
assert 'torch._dynamo' not in sys.modules  # torch's compiler, which takes seconds

import mmengine.hooks, mmengine.model
note('mmengine')
from tokennorm import replace_norms
from tokennorm.backbones import PVT
note('tokennorm.backbones')
import tokennorm.engine.hooks
note('tokennorm.engine hooks')

for name in ('mmcv', 'mmdet', 'mmpretrain', 'timm'):
    sys.modules[name] = None
from mmengine.registry import MODELS
sizes = dict(embed_dims=[8], depths=[1], num_heads=[2], mlp_ratios=[1], sr_ratios=[2])
cfg = dict(type='tokennorm.PVT', arch=sizes, token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed'))
model = MODELS.build(cfg)
assert {'DTN', 'DualPatchEmbed'} < {type(module).__name__ for module in model.modules()}
model(torch.randn(1, 3, 32, 32))
layer = nn.TransformerEncoderLayer(8, 2, 16)
assert replace_norms(layer, dict(type='DTN'), grid='sequence') == ['norm1', 'norm2']
# The example of the README, where none of OpenMMLab's packages can be imported.
for name in [name for name in sys.modules if name.partition('.')[0] in ('tokennorm', 'mmengine')]:
    del sys.modules[name]
for name in ('mmengine', 'mmcv', 'mmdet', 'mmpretrain', 'mmseg'):
    sys.modules[name] = None
del sys.modules['timm']
import timm
from tokennorm import replace_norms, replace_stem

model = timm.create_model('deit_small_patch16_224', embed_dim=12, num_heads=3)
assert len(replace_norms(model, dict(type='DTN', init='layer_norm'), exclude='blocks.1[01].*')) == 20
assert replace_stem(model, dict(type='tokennorm.DualPatchEmbed')) == 'patch_embed'
model(torch.randn(1, 3, 224, 224)).sum().backward()
try:
    replace_norms(model, dict(type='DNT'))
except ValueError as error:
    assert 'did you mean DTN' in str(error), error
else:
    raise AssertionError
print(json.dumps(added))
"""


@pytest.fixture(scope='module')
def added():
    done = subprocess.run([sys.executable, '-c', PROBE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_normalizers_need_torch_and_einops_only(added):
    """In a block of plain torch, forward and backward."""
    assert set(added['tokennorm.norms']) <= {'tokennorm', 'filelock'}  # which torch requires
    assert 'triton' not in added['torch einops']


def test_backbones_and_replacing_need_mmengine_too(added):
    """They run where neither mmdet nor timm can be imported; replacing in a timm model runs without mmengine too."""
    assert added['tokennorm.backbones'] == []


def test_hooks_load_nothing_but_mmengine(added):
    assert not {'mmdet', 'mmcv', 'pycocotools', 'timm'} & set(added['tokennorm.engine hooks'])
