"""Token normalizers in models of timm, mmdet, mmpretrain and torch: what is replaced, what is kept, and what raises."""

import copy
import threading

import pytest
import timm
import torch
import torch.nn.functional as F
from mmpretrain.models import MAEViT
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from tests.helpers.compare import assert_same_with_gradients
from tests.helpers.third_party import MODELS, maps, vit, with_random_norms
from tests.reference import dense_dtn
from tokennorm import replace_norms
from tokennorm.norms import DTN
from tokennorm.padding import note_image_sizes
from tokennorm.replace.grid_norm_adapter import GridNormAdapter

LAYER_NORM_START = dict(type='DTN', init='layer_norm')


@pytest.mark.parametrize('name', MODELS)
def test_dtn_at_its_layer_norm_start_keeps_what_a_model_gives(name):
    build, size, count, heads = MODELS[name]
    model = with_random_norms(build())
    layer_norms = dict(model.named_modules())
    x = torch.randn(2, 3, *size)
    expected = maps(model(x))
    names = replace_norms(model, LAYER_NORM_START)
    assert len(names) == count
    norms = [model.get_submodule(name).norm for name in names]
    assert all(type(norm) is DTN for norm in norms)
    assert (norms[0].num_heads, norms[-1].num_heads) == heads
    for name, norm in zip(names, norms, strict=True):
        assert norm.eps == layer_norms[name].eps
        assert torch.equal(norm.weight, layer_norms[name].weight)
        assert torch.equal(norm.bias, layer_norms[name].bias)
    out = maps(model(x))
    for got, want in zip(out, expected, strict=True):
        assert (got - want).abs().max() <= 1e-3 * want.abs().max()
    for norm in norms:
        nn.init.zeros_(norm.mean_logit)
        nn.init.zeros_(norm.var_logit)
    assert any(
        (got - want).abs().max() > 1e-2 * want.abs().max() for got, want in zip(maps(model(x)), out, strict=True)
    )
    model.train()
    sum(out.square().mean() for out in maps(model(x))).backward()
    without = [
        f'{name}.{key}' for name in names for key, p in model.get_submodule(name).named_parameters() if p.grad is None
    ]
    assert without == []


def seen_by(model, names, *args):
    """What the norms of these names are given and give, in a forward pass."""
    seen = {}
    handles = [
        model.get_submodule(name).norm.register_forward_hook(
            lambda module, args, out, name=name: seen.update({name: (*args, out)})
        )
        for name in names
    ]
    model(*args)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize('kind', ['DTN', 'GN', 'BN', 'RMSNorm', 'ScaleNorm'])
def test_prefix_tokens_use_layer_norm_and_the_grid_the_new_norm(kind):
    model = with_random_norms(vit(reg_tokens=2))
    layer_norm = model.blocks[0].norm1
    cfg = dict(type=kind, num_groups=4) if kind == 'GN' else dict(type=kind)
    replace_norms(model, cfg)
    x = torch.randn(2, 3 + 24, 16)
    model(torch.randn(2, 3, 32, 48))  # leaves its grid of 4 x 6
    out = model.blocks[0].norm1(x)
    keeps_bias = kind not in ('RMSNorm', 'ScaleNorm')
    weight = layer_norm.weight if kind != 'ScaleNorm' else None
    expected = F.layer_norm(x[:, :3], (16,), weight, layer_norm.bias if keeps_bias else None, eps=layer_norm.eps)
    assert torch.equal(out[:, :3], expected)
    grid = x[:, 3:].unflatten(1, (4, 6))
    assert torch.equal(out[:, 3:], model.blocks[0].norm1.norm(grid).flatten(1, 2))


def test_grids_follow_each_forward_and_copies_are_independent():
    model = vit(dynamic_img_size=True)
    names = replace_norms(model, dict(type='DTN'))
    other = copy.deepcopy(model)
    for size, grid in [((32, 48), (4, 6)), ((48, 32), (6, 4)), ((16, 96), (2, 12)), ((32, 48), (4, 6))]:
        x = torch.randn(1, 3, *size)
        assert seen_by(model, names, x)['blocks.1.norm2'][0].shape == (1, *grid, 16)
    assert model.blocks[0].norm1.record is model.blocks[1].norm2.record
    assert set(model.blocks[0].norm1.record.grids) == {(4, 6, 1)}  # of the last pass alone
    assert other.blocks[0].norm1.record is other.blocks[1].norm2.record
    assert other.blocks[0].norm1.record.grids == []
    assert torch.equal(other.eval()(x), model.eval()(x))


def test_grids_do_not_accumulate_without_model_forward():
    """`forward_features` skips the hook that forgets the last pass. Of two sizes with equal counts the later counts."""
    model = vit(dynamic_img_size=True)
    names = replace_norms(model, dict(type='DTN'))
    record = model.get_submodule(names[0]).record
    for size, grid in [((32, 48), (4, 6)), ((48, 32), (6, 4))] * 2:
        model.forward_features(torch.randn(1, 3, *size))
        assert record.find(25, 1, (1,)) == (1, grid)
    assert len(record.grids) == 2


def test_padding_stays_out_of_the_statistics():
    model = vit()
    names = replace_norms(model, dict(type='DTN'))
    images = note_image_sizes(torch.randn(2, 3, 32, 48), [(32, 31), (17, 48)])
    _, valid, _ = seen_by(model, names, images)['blocks.0.norm1']
    assert valid.tolist() == [[4, 3], [2, 6]]
    assert len(seen_by(model, names, torch.randn(2, 3, 32, 48))['blocks.0.norm1']) == 2


def test_a_token_sequence():
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(2, 11, 16)
    expected = encoder(x)
    names = replace_norms(encoder, LAYER_NORM_START, grid='sequence')
    assert names == ['layers.0.norm1', 'layers.0.norm2', 'layers.1.norm1', 'layers.1.norm2']
    assert (encoder(x) - expected).abs().max() <= 1e-3 * expected.abs().max()
    encoder.eval()
    with torch.no_grad():  # where torch takes a fused path around the norms of an encoder without hooks
        seen = seen_by(encoder, names[:1], x)
    assert seen['layers.0.norm1'][0].shape == (2, 1, 11, 16)
    with torch.no_grad():
        before = encoder(x)
        nn.init.zeros_(encoder.layers[0].norm1.norm.var_logit)
        assert (encoder(x) - before).abs().max() > 1e-3


def test_a_given_grid_takes_precedence_over_seen_ones():
    model = vit()
    names = replace_norms(model, dict(type='DTN'), grid={'blocks.0.*': (3, 8), 'blocks.1.norm1': 'sequence'})
    seen = seen_by(model, names, torch.randn(1, 3, 32, 48))
    shapes = [tuple(seen[name][0].shape[1:3]) for name in names]
    assert shapes == [(3, 8), (3, 8), (1, 24), (4, 6)]


@pytest.mark.parametrize(
    'build',
    [
        lambda: vit(global_pool='map', class_token=False),
        lambda: timm.create_model('xcit_nano_12_p16_224', img_size=32, embed_dim=16, depth=2, num_heads=2),
    ],
    ids=['pooling by attention', 'a list of class attentions'],
)
def test_last_norm_stays_with_attention_outside_blocks(build):
    model = build()
    names = replace_norms(model, dict(type='DTN'))
    assert {'blocks.0.norm1', 'blocks.1.norm1'} <= set(names)
    assert isinstance(model.norm, nn.LayerNorm)


def test_normalizers_have_the_mode_and_dtype_of_the_model():
    model = vit().double().eval()
    replace_norms(model, dict(type='BN'))
    bn = model.blocks[0].norm1.norm.bn
    assert model(torch.randn(2, 3, 32, 48).double()).dtype == torch.float64
    assert (bn.training, bn.weight.dtype, bn.num_batches_tracked.item()) == (False, torch.float64, 0)


def test_names_choose_and_leave_out():
    model = vit(depth=3)
    assert replace_norms(model, dict(type='DTN'), exclude='blocks.2.*') == [
        f'blocks.{i}.norm{j}' for i in (0, 1) for j in (1, 2)
    ]
    assert replace_norms(model, dict(type='DTN'), include=['blocks.2.norm1', 'norm'], num_heads={'norm': 2}) == [
        'blocks.2.norm1',
        'norm',
    ]
    assert (model.norm.norm.num_heads, model.blocks[2].norm1.norm.num_heads) == (2, 4)
    model(torch.randn(1, 3, 32, 48))


def test_channels_first_layer_norms():
    block = nn.Module()
    block.norm, block.attn = timm.layers.LayerNorm2d(8), nn.MultiheadAttention(8, 2)
    model = nn.Sequential(block)
    x = torch.randn(2, 8, 3, 5)
    expected = block.norm(x)
    assert replace_norms(model, LAYER_NORM_START) == ['0.norm']
    assert (model[0].norm(x) - expected).abs().max() < 1e-2
    assert type(model[0].norm) is GridNormAdapter


def test_batch_norms_of_tokens_by_name():
    widths = dict(embed_dim=(16, 24), key_dim=8, depth=(1, 1), num_heads=(2, 3), num_classes=5)
    model = timm.create_model('levit_128s', img_size=128, **widths)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):  # those before shortcuts begin with zeros
            nn.init.normal_(module.weight, 1, 0.3)
    replaced, x = copy.deepcopy(model), torch.randn(3, 3, 128, 128)
    names = replace_norms(replaced, dict(type='BN'), include='stages.*.bn', num_heads=2)
    torch.testing.assert_close(replaced.train()(x), model.train()(x))
    assert seen_by(replaced, names, x)['stages.1.blocks.0.attn.qkv.bn'][0].shape[:3] == (3, 4, 4)


def test_hiera_is_refused_because_it_reorders_tokens():
    model = timm.create_model('hiera_tiny_224', img_size=64, embed_dim=16)
    for include in (None, 'blocks.*.norm1'):
        with pytest.raises(ValueError, match=r'Hiera reorders its tokens .* sam2_hiera_tiny'):
            replace_norms(model, dict(type='DTN'), include=include, num_heads=1)


@pytest.mark.parametrize(
    ('name', 'args'), [('naflexvit_base_patch16_gap', {}), ('vit_tiny_patch16_224', dict(patch_drop_rate=0.5))]
)
def test_models_that_pack_or_drop_patches_are_refused(name, args):
    model = timm.create_model(name, depth=1, embed_dim=32, num_heads=2, **args)
    with pytest.raises(ValueError, match='packs or leaves out patches, so that their grid is lost'):
        replace_norms(model, dict(type='DTN'))


def test_errors_name_what_is_wrong_and_leave_the_model_as_it_was():
    levit = timm.create_model('levit_128s')
    with pytest.raises(ValueError, match=r'LevitDistilled has no LayerNorm .* Its norms are BatchNorm1d'):
        replace_norms(levit, dict(type='DTN'))
    model = vit()
    before = [type(module) for module in model.modules()]
    for arguments, message in (
        (dict(include='stages.*'), r'no LayerNorm with a name that matches stages\.\*'),
        (dict(include='*norm*'), 'num_heads=None must set the heads of norm'),
        (dict(num_heads=3), r'blocks\.0\.norm1: DTN: num_heads=3 must divide num_features=16'),
        (dict(grid=7), r'blocks\.0\.norm1: grid=7 must be \(height, width\)'),
    ):
        with pytest.raises(ValueError, match=message):
            replace_norms(model, dict(type='DTN'), **arguments)
    assert [type(module) for module in model.modules()] == before
    replace_norms(model, dict(type='DTN'))
    with pytest.raises(ValueError, match='has no LayerNorm'):
        replace_norms(model, dict(type='DTN'))
    with pytest.raises(ValueError, match=r'blocks\.0\.norm1: grid=None does not give the grid of 8 tokens'):
        model.blocks[0].norm1(torch.randn(1, 8, 16))
    with pytest.raises(ValueError, match=r'(takes|expected) \(B, T, C\) or \(B, H, W, C\)'):
        model.blocks[0].norm1(torch.randn(8, 16))


class Sequences(nn.Module):
    """One norm of a language model."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(12, eps=1e-6)

    def forward(self, x, attention_mask=None):
        return self.norm(x)


def padded_sequences():
    """A model with a random DTN after one class token, tokens (B, 1 + T, C) and their mask."""
    model = Sequences().double()
    replace_norms(model, dict(type='DTN'), include='norm', num_heads=4, grid='sequence', num_prefix_tokens=1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    x = torch.randn(3, 10, 12, dtype=torch.float64)
    mask = torch.arange(10) < torch.tensor([10, 7, 2])[:, None]
    return model, x, mask.long()


@pytest.mark.parametrize('by_name', [True, False], ids=['keyword', 'positional'])
def test_attention_masks_limit_sequences_as_in_the_reference(by_name):
    """Forward and backward: tokens inside as if alone, the class token and the tokens outside as by LayerNorm."""
    model, x, mask = padded_sequences()
    x.requires_grad_()
    actual = model(x, attention_mask=mask) if by_name else model(x, mask)
    norm = model.norm.norm
    parameters = (norm.weight, norm.bias, norm.mean_logit, norm.var_logit, norm.position)
    expected = F.layer_norm(x, (12,), norm.weight, norm.bias, 1e-6)
    inside = torch.zeros_like(expected)
    for i, length in enumerate(mask.sum(dim=1).tolist()):
        alone = dense_dtn(x[i : i + 1, 1:length], (1, length - 1), *parameters, eps=1e-6)
        inside = inside.index_put((torch.tensor([i]), torch.arange(1, length)), alone[0])
    is_inside = mask.bool() & (torch.arange(10) > 0)
    expected = torch.where(is_inside[..., None], inside, expected)
    assert_same_with_gradients(actual, expected, dict(x=x) | dict(norm.named_parameters()))


def test_torch_hides_padding_where_its_mask_is_true():
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    replace_norms(encoder, dict(type='DTN'), grid='sequence')
    x = torch.randn(2, 10, 16, dtype=torch.float64)
    out = encoder(x, src_key_padding_mask=torch.arange(10) >= torch.tensor([10, 6])[:, None])
    torch.testing.assert_close(out[1, :6], encoder(x[1:, :6])[0])


@pytest.mark.parametrize('use_reentrant', [True, False])
def test_checkpointing_knows_the_padding_of_each_forward_pass(use_reentrant):
    """Passes with and without padding before one backward pass, one without any, and one after the other."""
    model, x, mask = padded_sequences()
    x.requires_grad_()

    def gradients():
        model(x, mask.flip(0))  # a pass whose loss is skipped
        sum(model(x, one).square().mean() for one in (None, mask, mask[[1, 0, 2]], None)).backward()
        model(x, mask).mean().backward()
        values = [x.grad, *(p.grad for p in model.parameters())]
        model.zero_grad(), setattr(x, 'grad', None)
        return values

    expected, norm = gradients(), model.norm.forward
    model.norm.forward = lambda x: checkpoint(norm, x, use_reentrant=use_reentrant)
    for actual, value in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(actual, value)


@pytest.mark.parametrize('method', ['__call__', 'forward_features', 'forward_intermediates'])
@pytest.mark.parametrize('noted', [False, True])
def test_checkpointing_knows_the_grid_of_each_forward_pass(method, noted):
    """14 x 16 and 16 x 14 have equally many tokens. With sizes, a part of the image is padding."""
    model = vit(dynamic_img_size=True)
    replace_norms(model, dict(type='DTN'))
    images = torch.randn(1, 3, 32, 48), torch.randn(1, 3, 48, 32)
    if noted:
        note_image_sizes(images[0], [(24, 40)])

    def gradients():
        tensors = [out for image in images for out in tree_leaves(getattr(model, method)(image))]
        sum(out.square().mean() for out in tensors).backward()
        values = [p.grad for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        return values

    expected = gradients()
    model.set_grad_checkpointing()
    for actual, value in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(actual, value)


class Wrapper(nn.Module):
    """Passes its arguments on, as PEFT's models."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)


def test_masks_reach_a_model_through_any_arguments():
    inner, x, mask = padded_sequences()
    model = Wrapper(Sequences().double())
    replace_norms(model, dict(type='DTN'), include='*norm', num_heads=4, grid='sequence', num_prefix_tokens=1)
    model.model.norm.load_state_dict(inner.norm.state_dict())
    torch.testing.assert_close(model(x, attention_mask=mask), inner(x, mask))


@pytest.mark.parametrize(
    ('make', 'message'),
    [
        (lambda: timm.create_model('nest_tiny'), 'NesT reorders its tokens'),
        (lambda: MAEViT(dict(embed_dims=16, num_layers=1, num_heads=2, feedforward_channels=16), 32, 8), 'leaves out'),
    ],
    ids=['NesT', 'MAE'],
)
def test_models_that_lose_the_grid_are_refused(make, message):
    with torch.device('meta'), pytest.raises(ValueError, match=message):
        replace_norms(make(), dict(type='DTN'))


@pytest.mark.parametrize('pattern', ['blocks.(0|1).*', 'blocks.1', '*.attn'])
def test_a_pattern_that_leaves_out_nothing_is_named(pattern):
    with pytest.warns(UserWarning, match=r'exclude=.* matches no norm; \* is any text'):
        replace_norms(vit(), dict(type='DTN'), exclude=pattern)


def test_a_norm_with_an_activation_stays():
    block = nn.Sequential()
    block.attn, block.norm = nn.MultiheadAttention(8, 2), timm.layers.LayerNormAct(8, act_layer=nn.ReLU)
    with pytest.raises(ValueError, match='norm is a LayerNormAct with an activation, which would be lost'):
        replace_norms(block, dict(type='DTN'))


def test_an_attention_mask_does_not_outlive_its_forward_pass():
    model, x, mask = padded_sequences()
    before = model(x)
    masked = model(x, attention_mask=mask)
    assert not torch.equal(masked[1], before[1])
    assert torch.equal(model(x), before)


@torch.no_grad()
def test_sizes_of_a_padded_batch_do_not_outlive_its_forward_pass():
    model = vit().eval()
    replace_norms(model, dict(type='DTN'))
    x = torch.randn(2, 3, 32, 48)
    expected = model.forward_features(x)
    padded = model(note_image_sizes(x.clone(), [(32, 24), (16, 48)]))
    assert torch.equal(model.forward_features(x), expected)
    assert (padded - model(x)).abs().max() > 1e-3  # the sizes count in their own pass


@torch.no_grad()
def test_a_second_thread_is_refused():
    model, errors = vit().eval(), []
    replace_norms(model, dict(type='DTN'))

    def call():
        try:
            model(torch.randn(1, 3, 32, 48))
        except RuntimeError as error:
            errors.append(str(error))

    def in_the_middle(*_):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    handle = model.blocks[0].register_forward_hook(in_the_middle)
    model(torch.randn(1, 3, 32, 48))
    (error,) = errors
    assert 'copy.deepcopy' in error
    handle.remove()
    in_the_middle()  # after the pass
    assert len(errors) == 1


@torch.no_grad()
def test_norms_replaced_in_two_calls_know_the_same_grids():
    model = timm.create_model('swin_tiny_patch4_window7_224', img_size=(128, 288), window_size=4, depths=(1, 1, 1, 1))
    twice = copy.deepcopy(model.eval())
    replace_norms(model, dict(type='DTN'))
    for norm in ('norm1', 'norm2'):
        replace_norms(twice, dict(type='DTN'), include=f'*blocks*.{norm}')
    x = torch.randn(1, 3, 128, 288)  # 32 x 72 tokens would also be a square of 48
    assert torch.equal(twice(x), model(x))


def test_norms_without_parameters_follow_the_device_of_the_model():
    block = nn.Module()
    block.norm1, block.attn = nn.LayerNorm(8, elementwise_affine=False), nn.MultiheadAttention(8, 2)
    block.to('meta').requires_grad_(False)
    replace_norms(block, dict(type='DTN'))
    assert {p.device.type for p in block.parameters()} == {'meta'}


def test_frozen_weights_stay_frozen():
    model = vit().requires_grad_(False)
    replace_norms(model, dict(type='DTN'))
    trained = {name.rpartition('.')[2] for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {'mean_logit', 'var_logit', 'position'}
