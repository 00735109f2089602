"""PVT: equal to the published backbone and to mmdet's, and what its arguments do."""

import pytest
import torch
import torch.nn.functional as F
from mmdet.models.backbones.pvt import PyramidVisionTransformer, pvt_convert

from tests.helpers.compare import assert_near
from tests.helpers.pvt import ARCH, published_layout, small_pvt
from tests.helpers.weights import randomize
from tokennorm.backbones import PVT
from tokennorm.checkpoints import from_published_pvt
from tokennorm.layers.positions import positions_of


def test_dtn_variants_have_more_heads_and_the_same_parameters():
    """Eq. 7 of the DTN paper then centers the heads of every stage on different neighbors of a token."""
    with torch.device('meta'):
        plain, dtn = (PVT(arch, token_norm_cfg=dict(type='DTN')) for arch in ('tiny', 'tiny-dtn'))
    for model, num_heads in ((plain, [1, 2, 5, 8]), (dtn, [4, 4, 5, 8])):
        assert [stage.blocks[0].attn.num_heads for stage in model.stages] == num_heads
        assert [stage.blocks[0].norm1.num_heads for stage in model.stages[:3]] == num_heads[:3]
    of_norms = ('mean_logit', 'var_logit', 'position')
    shapes = [{n: p.shape for n, p in m.named_parameters() if not n.endswith(of_norms)} for m in (plain, dtn)]
    assert shapes[0] == shapes[1]
    centered = PVT('tiny-dtn', token_norm_cfg=dict(type='DTN')).stages[0].blocks[0].norm1.position
    assert centered.tolist() == [[-1, x, y] for x in (-1, 1) for y in (-1, 1)]


def mmdets_pvt(ours):
    """mmdet's PVT with the weights of ours."""
    theirs = PyramidVisionTransformer(
        embed_dims=8,
        num_layers=ARCH['depths'],
        num_heads=ARCH['num_heads'],
        mlp_ratios=ARCH['mlp_ratios'],
        drop_path_rate=0.0,
        norm_cfg=dict(type='LN', eps=1e-6),
    )
    theirs.load_state_dict(pvt_convert(published_layout(ours)), strict=True)
    return theirs.eval()


@pytest.mark.parametrize(('size', 'stages'), [((224, 224), 4), ((64, 96), 4), ((100, 68), 1)])
def test_equals_mmdets_pvt_with_the_same_weights(size, stages):
    """100 x 68: the first stage's 25 x 17 tokens give 3 x 2 keys, and what is left over none."""
    ours = randomize(small_pvt(norm_cfg=dict(type='LN', eps=1e-6)))
    image = torch.randn(2, 3, *size)
    for stage, (actual, expected) in enumerate(list(zip(ours(image), mmdets_pvt(ours)(image), strict=True))[:stages]):
        assert_near(f'stage {stage}', actual, expected)


def test_published_classifier_gives_its_class_token():
    """The published last stage, written out: the token comes first, has a position, and is normalized alone."""
    ours = PVT(ARCH, pretrain_img_size=64, out_type='cls_token', drop_path_rate=0.0)
    published = published_layout(randomize(small_pvt(pretrain_img_size=64)))
    ours.load_state_dict(from_published_pvt(published, 'cls_token'), strict=True)
    last = ours.stages[3]
    for name, value in (('cls_token', last.cls_token), ('pos_embed4', last.pos_embed), ('norm.bias', ours.norm.bias)):
        assert torch.equal(published[name], value), name
    image = torch.randn(2, 3, 64, 64)
    x = image
    for stage in ours.stages[:3]:
        x = stage(x)
    x = F.conv2d(x, last.patch_embed.proj.weight, last.patch_embed.proj.bias, stride=2).flatten(2).mT
    x = F.layer_norm(x, (64,), *last.patch_embed.norm.parameters(), 1e-5)
    x = torch.cat([last.cls_token.expand(2, -1, -1), x], dim=1) + last.pos_embed
    for block in last.blocks:
        y = F.layer_norm(x, (64,), *block.norm1.parameters(), 1e-6)
        q, k, v = (t.view(2, 5, 8, 8).transpose(1, 2) for t in (block.attn.q(y), *block.attn.kv(y).chunk(2, dim=-1)))
        x = x + block.attn.proj(((q @ k.mT * 8**-0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = F.layer_norm(x, (64,), *block.norm2.parameters(), 1e-6)
        x = x + block.mlp.fc2(F.gelu(block.mlp.fc1(y)))
    expected = F.layer_norm(x[:, 0], (64,), *ours.norm.parameters(), 1e-6)
    assert_near('class token', ours(image)[0], expected)


def test_initial_positions_and_class_token():
    model = small_pvt(token_norm_cfg=dict(type='DTN'))
    assert model.stages[2].blocks[0].norm1.position[:, 0].tolist() == [-1] * 5
    classifier = PVT(ARCH, out_type='cls_token')
    for parameter in (*(stage.pos_embed for stage in classifier.stages), classifier.stages[3].cls_token):
        assert 0.01 < parameter.std() < 0.03


def test_position_embeddings_have_the_pretraining_grid():
    shapes = [stage.pos_shape for stage in small_pvt(pretrain_img_size=(240, 322)).stages]
    assert shapes == [(60, 81), (30, 41), (15, 21), (8, 11)]
    tall, wide = small_pvt(pretrain_img_size=(96, 32)), torch.randn(1, 3, 96, 32)
    for stage, x in zip(tall.stages, (24, 12, 6, 3), strict=True):
        assert torch.equal(positions_of(stage, torch.ones(1, x, x // 3, 1)).flatten(1, 2), stage.pos_embed)
    assert [tuple(out.shape[2:]) for out in tall(wide)] == [(24, 8), (12, 4), (6, 2), (3, 1)]
