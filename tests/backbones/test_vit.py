"""ViT: equal to timm's and mmpretrain's classifier, windows and DTN as written, and what its arguments do."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from timm.layers import resample_abs_pos_embed
from torch import nn

from tests.helpers.cases import slow
from tests.helpers.compare import assert_near
from tests.helpers.vit import ARCH, classifier, small_vit, timms_model
from tests.helpers.weights import randomize
from tests.reference import attention_written_out
from tokennorm.backbones import ViT
from tokennorm.backbones.vit import Attention, WindowAttention
from tokennorm.checkpoints import CheckpointError, from_published_vit, load_pretrained
from tokennorm.layers import DualPatchEmbed, PatchEmbed
from tokennorm.layers.positions import resize_positions
from tokennorm.norms import DTN, LayerNorm


def assert_equals_timm(ours, theirs, size):
    """Forward and every gradient."""
    ours.load_state_dict(from_published_vit(theirs.state_dict(), 'cls_token'), strict=True)
    image = torch.randn(2, 3, *size)
    weights = torch.randn(2, ours.embed_dims)
    actual = ours(image)[0]
    expected = theirs.forward_head(theirs.forward_features(image), pre_logits=True)
    assert_near('class token', actual, expected)
    for out in (actual, expected):
        (out * weights).sum().backward()
    grads = from_published_vit(
        {name: p.grad for name, p in theirs.named_parameters() if not name.startswith('head.')}, 'cls_token'
    )
    assert set(grads) == {name for name, _ in ours.named_parameters()}
    for name, p in ours.named_parameters():
        assert_near(name, p.grad, grads[name], 'backward')


@pytest.mark.parametrize('size', [(32, 32), (48, 24), (24, 72)])
def test_equals_timms_classifier_with_the_same_weights(size):
    assert_equals_timm(classifier(), timms_model(), size)


@pytest.mark.parametrize(
    ('arch', 'name', 'size'),
    [
        slow('tiny', 'vit', (160, 288)),
        ('tiny', 'deit', (224, 224)),
        slow('tiny', 'vit', (224, 224)),
        slow('tiny', 'deit', (160, 288)),
        *(slow(*case) for case in product(('small', 'base'), ('deit', 'vit'), ((224, 224), (160, 288)))),
    ],
)
def test_equals_timms_published_sizes(arch, name, size):
    timm = pytest.importorskip('timm')
    theirs = timm.create_model(f'{name}_{arch}_patch16_224', dynamic_img_size=True)
    ours = ViT(arch, out_type='cls_token', drop_path_rate=0.0)
    assert_equals_timm(ours.eval(), randomize(theirs, 0.02), size)


def test_equals_timms_without_a_position_for_the_class_token():
    theirs = timms_model(no_embed_class=True)
    ours = classifier().eval()
    ours.load_state_dict(from_published_vit(theirs.state_dict(), 'cls_token'), strict=True)
    image = torch.randn(2, 3, 48, 24)
    expected = theirs.forward_head(theirs.forward_features(image), pre_logits=True)
    assert_near('class token', ours(image)[0], expected)


def test_equals_timms_maps_where_all_blocks_see_the_whole_grid():
    """And where there is no class token in timm's either, and no norm at the end."""
    theirs = timms_model(class_token=False, global_pool='avg')
    ours = small_vit(global_indices=range(4), out_indices=(3, 1)).eval()
    ours.load_state_dict(from_published_vit(theirs.state_dict()), strict=True)
    image = torch.randn(2, 3, 48, 24)
    expected = theirs.forward_intermediates(image, indices=[1, 3], intermediates_only=True)
    for name, actual, their in zip(('block 1', 'block 3'), ours(image), expected, strict=True):
        assert_near(name, actual, their)


def test_positions_of_other_grids_are_timms():
    positions = torch.randn(1, 1 + 4 * 6, 5)
    grid = positions[:, 1:].unflatten(1, (4, 6))
    assert resize_positions(grid, (4, 6)) is grid
    for shape in [(9, 7), (2, 3), (3, 11)]:
        expected = resample_abs_pos_embed(positions, list(shape), [4, 6])[:, 1:].unflatten(1, shape)
        assert_near(str(shape), resize_positions(grid, shape), expected)
    assert resize_positions(grid.bfloat16(), (9, 7)).dtype == torch.bfloat16


def test_relative_positions_are_initialized_to_zero():
    """Those of windows have the windows' size, the others that of `rel_pos`."""
    plain, model = small_vit(), small_vit(rel_pos=(5, 6))
    tables = {name: p for name, p in model.named_parameters() if name.endswith(('rel_pos_h', 'rel_pos_w'))}
    assert {name: p.shape for name, p in tables.items() if not name.startswith('blocks.1')} == {
        f'blocks.{i}.attn.rel_pos_{axis}': (2 * size - 1, 8) for i in (0, 2, 3) for axis, size in (('h', 5), ('w', 6))
    }
    assert all((p == 0).all() for p in tables.values())
    windowed = small_vit(rel_pos=5, global_indices=(3,)).state_dict()
    assert {len(windowed[f'blocks.{i}.attn.rel_pos_h']) for i in range(3)} == {5}
    assert len(windowed['blocks.3.attn.rel_pos_w']) == 9
    model.load_state_dict(plain.state_dict() | tables)
    image = torch.randn(1, 3, 40, 56)
    for got, want in zip(model.eval()(image), plain.eval()(image), strict=True):
        assert_near('map', got, want)
    model.train()(image)[0].square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_checkpoint_with_and_without_relative_positions(tmp_path):
    model = small_vit(rel_pos=4)
    names = [name for name, _ in model.named_parameters() if name.endswith(('rel_pos_h', 'rel_pos_w'))]
    torch.save(timms_model().state_dict(), tmp_path / 'timm.pth')
    assert load_pretrained(randomize(model), tmp_path / 'timm.pth').missing == names
    assert all((model.get_parameter(name) == 0).all() for name in names)
    torch.save(randomize(small_vit(rel_pos=4)).state_dict(), tmp_path / 'ours.pth')
    load_pretrained(model, tmp_path / 'ours.pth')
    assert all((model.get_parameter(name) != 0).any() for name in names)
    some = {key: value for key, value in model.state_dict().items() if key != names[0]}
    torch.save(some, tmp_path / 'some.pth')
    with pytest.raises(CheckpointError, match=f'1 missing: {names[0]}'):
        load_pretrained(model, tmp_path / 'some.pth')
    torch.save(randomize(small_vit(rel_pos=5)).state_dict(), tmp_path / 'other.pth')
    with pytest.raises(CheckpointError, match=r'rel_pos_h \(\(9, 8\) in the file, \(7, 8\) in the model\)'):
        load_pretrained(model, tmp_path / 'other.pth')


@pytest.mark.parametrize(
    ('depth', 'expected'), [(12, [2, 5, 8, 11]), (24, [5, 11, 17, 23]), (5, [1, 2, 3, 4]), (1, [0])]
)
def test_global_blocks_end_each_quarter(depth, expected):
    arch = ARCH | dict(depth=depth)
    model = small_vit(arch=arch)
    assert [i for i, block in enumerate(model.blocks) if type(block.attn) is Attention] == expected
    assert {block.attn.window for block in model.blocks if type(block.attn) is WindowAttention} <= {3}
    assert {type(block.attn) for block in small_vit(arch=arch, out_type='cls_token').blocks} == {Attention}
    kinds = [type(block.attn) for block in small_vit(arch=arch, global_indices=(0,)).blocks]
    assert kinds == [Attention] + [WindowAttention] * (depth - 1)


@pytest.mark.parametrize('norm', ['LN', 'DTN'])
def test_dtn_looks_across_windows_before_they_are_cut(norm):
    """With LayerNorm a token in another window changes nothing, with DTN's statistics of the whole grid it does."""
    model = randomize(small_vit(token_norm_cfg=dict(type=norm), global_indices=()))
    block = model.blocks[0]
    x = torch.randn(1, 6, 6, 24)
    after = x + attention_written_out(block.attn, block.norm1(x), 3)
    assert_near('block', block(x), after + block.mlp(block.norm2(after)))
    changed = x.clone()
    changed[:, 3, 3] += 5
    difference = (block(changed) - block(x))[:, :3, :3].abs().max()
    assert (difference > 1e-4) if norm == 'DTN' else (difference == 0)


def test_the_class_token_joins_behind_the_blocks_of_dtn():
    model = randomize(classifier(token_norm_cfg=dict(type='DTN'), l_dtn=3))
    kinds = [(type(block.norm1), type(block.norm2)) for block in model.blocks]
    assert kinds == [(DTN, DTN)] * 3 + [(LayerNorm, LayerNorm)]
    assert model.pos_embed.shape == (1, 16, 24)
    shapes = []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, args: shapes.append(tuple(args[0].shape)))
    image = torch.randn(2, 3, 40, 24)
    actual = model(image)[0]
    assert shapes == [(2, 5, 3, 24)] * 3 + [(2, 1, 16, 24)]

    x = model.patch_embed(image) + resize_positions(model.pos_embed.unflatten(1, (4, 4)), (5, 3))
    for block in model.blocks[:3]:
        x = block(x)
    x = torch.cat([model.cls_token.expand(2, 1, 24), x.flatten(1, 2)], dim=1)
    last = model.blocks[3]
    x = x + last.attn(last.norm1(x)[:, None])[:, 0]
    x = x + last.mlp(last.norm2(x))
    assert_near('class token', actual, F.layer_norm(x[:, 0], (24,), model.norm.weight, model.norm.bias, 1e-6))


def test_how_many_blocks_have_token_norms():
    with torch.device('meta'):
        assert [ViT(token_norm_cfg=cfg).l_dtn for cfg in (None, dict(type='DTN'))] == [0, 10]
    model = small_vit(token_norm_cfg=dict(type='DTN', eps=1e-4), stem_cfg=dict(type='DualPatchEmbed'))
    norms = [norm for block in model.blocks for norm in (block.norm1, block.norm2)]
    assert [(type(norm), norm.num_heads, norm.pool, norm.eps) for norm in norms] == [(DTN, 3, 1, 1e-4)] * 8
    assert type(model.patch_embed) is DualPatchEmbed
    assert sum(type(module) is DTN for module in model.modules()) == 8
    assert small_vit(token_norm_cfg=dict(type='DTN', pool=2)).blocks[0].norm1.pool == 2
    plain = classifier(l_dtn=2)
    assert type(plain.patch_embed) is PatchEmbed
    assert {m.eps for m in plain.modules() if isinstance(m, nn.LayerNorm)} == {1e-6}
    assert plain(torch.randn(1, 3, 16, 16))[0].shape == (1, 24)
    other = classifier(token_norm_cfg=dict(type='LN', eps=1e-3), l_dtn=1, norm_cfg=dict(type='LN', eps=1e-5))
    assert [m.eps for m in other.modules() if isinstance(m, nn.LayerNorm)] == [1e-3] * 2 + [1e-5] * 7


def test_initial_positions_and_class_token():
    model = classifier(arch=dict(ARCH, embed_dims=96))
    for name in ('pos_embed', 'cls_token'):
        assert 0.014 < getattr(model, name).std() < 0.026, name


def test_positions_are_resized_to_the_grid_of_the_model(tmp_path):
    source = timms_model()
    torch.save(source.state_dict(), tmp_path / 'vit.pth')
    expected = resample_abs_pos_embed(source.pos_embed, [5, 8], [4, 4])
    for model, rows in ((small_vit(pretrain_img_size=(40, 64)), 1), (classifier(pretrain_img_size=(40, 64)), 0)):
        report = load_pretrained(model, tmp_path / 'vit.pth')
        assert_near('positions', model.pos_embed.detach(), expected[:, rows:].detach())
        left_out = {'cls_token', 'norm.weight', 'norm.bias'} if rows else set()
        assert report.resized == ['pos_embed']
        assert set(report.unexpected) == left_out | {'head.weight', 'head.bias'}
    own = classifier(pretrain_img_size=(40, 64))
    assert from_published_vit(own.state_dict(), 'cls_token', 0, (5, 8)).keys() == own.state_dict().keys()
    assert from_published_vit(own.state_dict(), 'featmap', 0, (5, 8))['pos_embed'].shape == (1, 40, 24)


def test_a_late_class_token_takes_its_position_with_it():
    theirs = timms_model()
    late = from_published_vit(theirs.state_dict(), 'cls_token', l_dtn=2)
    assert_near('token', late['cls_token'], theirs.cls_token + theirs.pos_embed[:, :1])
    assert torch.equal(late['pos_embed'], theirs.pos_embed[:, 1:])
    classifier(l_dtn=2).load_state_dict(late, strict=True)


def test_a_distilled_deit_fills_a_detectors_backbone():
    state_dict = timms_model().state_dict()
    extra = dict(dist_token=torch.randn(1, 1, 24), pos_embed=torch.randn(1, 18, 24))
    extra |= {'head_dist.weight': torch.randn(10, 24), 'head_dist.bias': torch.randn(10)}
    model = small_vit()
    model.load_state_dict(from_published_vit(state_dict | extra), strict=True)
    assert torch.equal(model.pos_embed, extra['pos_embed'][:, 2:])
