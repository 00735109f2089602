"""Grids and padding of token sequences in models of others: each forward pass has its own."""

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
from tests.helpers.norms import seen_by
from tests.helpers.third_party import vit
from tests.reference import dense_dtn
from tokennorm import replace_norms
from tokennorm.images.padding import note_image_sizes


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


def test_a_given_grid_takes_precedence_over_seen_ones():
    model = vit()
    names = replace_norms(model, dict(type='DTN'), grid={'blocks.0.*': (3, 8), 'blocks.1.norm1': 'sequence'})
    seen = seen_by(model, names, torch.randn(1, 3, 32, 48))
    shapes = [tuple(seen[name][0].shape[1:3]) for name in names]
    assert shapes == [(3, 8), (3, 8), (1, 24), (4, 6)]


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
