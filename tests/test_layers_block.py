"""The transformer block, and the placements of its norms."""

from torch import nn

from tokennorm.backbones import ViT
from tokennorm.layers.block import Block
from tokennorm.norms import LayerNorm

PLACEMENTS = ('pre', 'post', 'pre+post')
ARCH = dict(embed_dims=8, depths=2, num_heads=2, mlp_ratios=2)


def vit(**kwargs):
    return ViT(**dict(arch=ARCH, patch_size=8, pretrain_img_size=32, drop_path_rate=0.0) | kwargs)


def test_default_block_has_the_published_parameters():
    names = {name.split('.')[0] for name, _ in vit().blocks[0].named_parameters()}
    assert names == {'norm1', 'attn', 'norm2', 'mlp'}
    block = Block(LayerNorm(8), nn.Identity(), LayerNorm(8), nn.Identity(), drop_path=0.0)
    assert len(block.state_dict()) == 4
