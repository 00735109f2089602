"""Padding masks that a model passes to its encoder and decoder: where they are read and what is refused."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tokennorm import replace_norms
from tokennorm.replace.token_masks import lengths_of

LAYER = dict(d_model=16, nhead=2, dim_feedforward=16, dropout=0.0, batch_first=True, dtype=torch.float64)
SEQUENCE = dict(num_heads=2, grid='sequence')


def hidden(*lengths, tokens=10):
    """torch's padding mask: True hides a token."""
    return torch.arange(tokens) >= torch.tensor(lengths)[:, None]


def tokens(number=10):
    return torch.randn(2, number, 16, dtype=torch.float64)


def randomized(model):
    """With DTN far from LayerNorm, so that a padded token that enters is seen."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 or 'logit' in name or 'position' in name:
            nn.init.normal_(parameter, 0.2, 0.4)
    return model


class Classifier(nn.Module):
    """Builds its padding mask itself."""

    def __init__(self, use_reentrant=None, **kwargs):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**LAYER), 2, **kwargs)
        self.use_reentrant = use_reentrant

    def forward(self, x, lengths):
        padding = torch.arange(x.shape[1]) >= lengths[:, None]
        if self.use_reentrant is None:
            x = self.encoder(x, src_key_padding_mask=padding)
        else:
            x = checkpoint(self.encoder, x, None, padding, use_reentrant=self.use_reentrant)
        return x.sigmoid().masked_fill(padding[..., None], 0).sum(1) / lengths[:, None]


@pytest.mark.parametrize(
    ('mask', 'hides'),
    [
        (torch.tensor([[True, True, False], [True, True, True]]), False),
        (torch.tensor([[1, 2, 0], [1, 1, 1]]), False),
        (torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]), False),
        (torch.tensor([[0.0, 0.0, -1e9], [0.0, 0.0, 0.0]]), False),
        (torch.tensor([[False, False, True], [False, False, False]]), True),
        (torch.tensor([[0.0, 0.0, -torch.inf], [0.0, 0.0, 0.0]]), True),
    ],
    ids=['booleans', 'integers', 'numbers', 'added', "torch's booleans", "torch's added"],
)
def test_lengths_of_each_kind_of_mask(mask, hides):
    assert lengths_of(mask, hides).tolist() == [2, 3]
    with pytest.raises(ValueError, match='the mask hides tokens before others'):
        lengths_of(mask.flip(1), hides)


@pytest.mark.parametrize('kind', ['DTN', 'IN', 'BN', 'GN', 'SN'])
@pytest.mark.parametrize('training', [False, True])
def test_a_mask_that_is_built_inside_the_model_keeps_padding_out(kind, training):
    """With torch's defaults, in which an encoder makes nested tensors of padded sequences in eval mode."""
    torch.manual_seed(0)
    model, x, lengths = Classifier(), tokens(), torch.tensor([6, 10])
    cfg = dict(type=kind, num_groups=4) if kind == 'GN' else dict(type=kind)
    replace_norms(model, cfg, grid='sequence')
    randomized(model).train(training)
    other = x.clone()
    other[0, 6:] += 1
    with torch.no_grad():
        expected = model(x, lengths)
        assert torch.equal(model(other, lengths), expected)
        assert (model(other, torch.tensor([10, 10])) - model(x, torch.tensor([10, 10]))).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize('wrap', [False, True])
def test_padded_sequences_equal_those_alone(wrap):
    torch.manual_seed(1)
    model, x = Classifier().eval(), tokens()
    replace_norms(model if wrap else model.encoder, dict(type='DTN'), grid='sequence')
    randomized(model)
    both = model(x, torch.tensor([6, 10]))
    torch.testing.assert_close(both[:1], model(x[:1, :6], torch.tensor([6])))
    torch.testing.assert_close(both[1:], model(x[1:], torch.tensor([10])))


@torch.no_grad()
def test_an_encoder_with_nested_tensors_keeps_its_outputs():
    torch.manual_seed(2)
    model, x, lengths = randomized(Classifier()).eval(), tokens(), torch.tensor([6, 10])
    expected = model(x, lengths)
    replace_norms(model, dict(type='DTN', init='layer_norm'), grid='sequence')
    assert (model(x, lengths) - expected).abs().max() < 1e-3


@pytest.mark.parametrize('use_reentrant', [True, False])
@pytest.mark.parametrize('inside', [True, False], ids=['norms', 'encoder'])
def test_checkpointing_knows_the_mask_inside_the_model(use_reentrant, inside):
    """Forward passes with two masks before one backward pass; the norm alone is recomputed, or the whole encoder."""
    torch.manual_seed(3)
    model, x = Classifier(), tokens().requires_grad_()
    replace_norms(model, dict(type='DTN'), grid='sequence')
    randomized(model)

    def gradients():
        sum(model(x, torch.tensor(lengths)).square().mean() for lengths in ([6, 10], [10, 3], [10, 10])).backward()
        values = [x.grad, *(p.grad for p in model.parameters())]
        model.zero_grad(), setattr(x, 'grad', None)
        return values

    expected = gradients()
    if inside:
        for layer in model.encoder.layers:
            norm = layer.norm1.forward
            layer.norm1.forward = lambda x, norm=norm: checkpoint(norm, x, use_reentrant=use_reentrant)
    else:
        model.use_reentrant = use_reentrant
    for actual, value in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(actual, value)


class Sequences(nn.Module):
    """Returns its encoder's tokens, whose gradients arrive at both modules at once."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**LAYER), 1)

    def forward(self, x, lengths):
        return self.encoder(x, src_key_padding_mask=torch.arange(x.shape[1]) >= lengths[:, None])


def test_the_record_of_the_inner_module_returns_in_a_backward_pass():
    torch.manual_seed(4)
    model, x = Sequences(), tokens()
    replace_norms(model, dict(type='DTN'), grid='sequence')
    randomized(model)
    norm = model.encoder.layers[0].norm2.forward

    def gradient():
        model.zero_grad()
        outputs = [model(x, torch.tensor(lengths)) for lengths in ([6, 10], [10, 10])]
        sum(out.square().mean() for out in outputs).backward()
        return model.encoder.layers[0].norm2.norm.var_logit.grad

    expected = gradient()
    model.encoder.layers[0].norm2.forward = lambda x: checkpoint(norm, x, use_reentrant=False)
    torch.testing.assert_close(gradient(), expected)


def test_a_mask_does_not_outlive_its_module_or_a_backward_pass():
    torch.manual_seed(5)
    model, x = Classifier(), tokens()
    replace_norms(model, dict(type='DTN'), grid='sequence')
    layer = randomized(model).encoder.layers[0]
    alone, expected = layer.norm1(x), layer(x)
    model(x, torch.tensor([6, 10])).mean().backward()
    assert torch.equal(layer.norm1(x), alone)
    assert torch.equal(layer(x), expected)
    assert layer.norm1.record.lengths == []
    with pytest.raises(ValueError, match='hides tokens before others'):
        model.encoder(x, src_key_padding_mask=hidden(6, 10).flip(1))
    assert torch.equal(layer(x), expected)


class Wrapper(nn.Module):
    """Passes its arguments on, as PEFT's models."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)


def transformer():
    return nn.Transformer(16, 2, 1, 1, 16, dropout=0.0, batch_first=True, dtype=torch.float64).eval()


def _all_at_once(model):
    replace_norms(model, dict(type='DTN'), include='*layers.*', **SEQUENCE)
    return model


def _in_two_calls(model):
    for part in ('decoder', 'encoder'):
        replace_norms(model, dict(type='DTN'), include=f'{part}.layers.*', **SEQUENCE)
    return model


def _each_on_its_own(model):
    for part in (model.encoder, model.decoder):
        replace_norms(part, dict(type='DTN'), include='layers.*', **SEQUENCE)
    return model


def _wrapped(model):
    return _all_at_once(Wrapper(model))


@torch.no_grad()
@pytest.mark.parametrize('replace', [_all_at_once, _in_two_calls, _each_on_its_own, _wrapped])
def test_encoder_and_decoder_each_read_their_own_mask(replace):
    torch.manual_seed(6)
    model, source, target = randomized(replace(transformer())), tokens(), tokens(8)
    of_source = dict(src_key_padding_mask=hidden(10, 6), memory_key_padding_mask=hidden(10, 6))
    of_target = dict(tgt_key_padding_mask=hidden(8, 5, tokens=8))
    whole = model(source, target)
    for masks, inside, own in (
        (of_source, 8, (source[1:, :6], target[1:])),
        (of_target, 5, (source[1:], target[1:, :5])),
        (of_source | of_target, 5, (source[1:, :6], target[1:, :5])),
    ):
        out = model(source, target, **masks)
        torch.testing.assert_close(out[1:, :inside], model(*own))
        torch.testing.assert_close(out[0], whole[0])
        assert (out[1] - whole[1]).abs().max() > 1e-3


@torch.no_grad()
def test_equally_long_sequences_do_not_share_a_mask():
    """The decoder's tokens are as many as the encoder's, and all count."""
    torch.manual_seed(7)
    model, source, target = randomized(_wrapped(transformer())), tokens(), tokens()
    masks = dict(src_key_padding_mask=hidden(10, 6), memory_key_padding_mask=hidden(10, 6))
    torch.testing.assert_close(model(source, target, **masks)[1:], model(source[1:, :6], target[1:]))


class Pooled(nn.Module):
    """An encoder, and a decoder of queries without padding."""

    def __init__(self, queries):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**LAYER), 1)
        self.pool = nn.TransformerDecoderLayer(**LAYER)
        self.queries = nn.Parameter(torch.randn(1, queries, 16, dtype=torch.float64))

    def forward(self, x, attention_mask):
        padding = attention_mask == 0
        memory = self.encoder(x, src_key_padding_mask=padding)
        return self.pool(self.queries.expand(len(x), -1, -1), memory, memory_key_padding_mask=padding)


@torch.no_grad()
@pytest.mark.parametrize('queries', [4, 10])
def test_a_decoder_without_a_mask_does_not_take_the_encoder_s(queries):
    torch.manual_seed(8)
    model, x, mask = Pooled(queries).eval(), tokens(), (~hidden(10, 6)).long()
    replace_norms(model, dict(type='DTN'), include='*norm*', **SEQUENCE)
    randomized(model)
    torch.testing.assert_close(model(x, mask)[1:], model(x[1:, :6], mask[1:, :6]))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16, dtype=torch.float64)

    def forward(self, x, attention_mask=None):
        return self.norm(x)


class Blocks(nn.Module):
    """Two blocks with (B, T, C) of their own, and masks that they may be given."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x, y, attention_mask=None, decoder_attention_mask=None, given=()):
        return self.first(x, *given), self.second(y, *given)


def blocks(model):
    replace_norms(model, dict(type='IN'), include='*norm', **SEQUENCE)
    return model


def test_masks_of_two_sequences_are_refused_if_blocks_do_not_get_their_own():
    model, x, y, mask = blocks(Blocks()), tokens(), tokens(8), ~hidden(10, 6)
    model(x, y)
    for masks in (dict(attention_mask=mask), dict(decoder_attention_mask=mask[:, :8])):
        with pytest.raises(ValueError, match=f'Blocks has an encoder and a decoder.* whose {next(iter(masks))}'):
            model(x, y, given=(torch.zeros(2, 1, 10, 10),), **masks)
    with pytest.raises(ValueError, match='mask of Block is'):
        model(x, y, given=(mask,))
    assert all(torch.isfinite(out).all() for out in model(x, y))


class Masked(nn.Module):
    """One sequence; its block may be given another form of the mask."""

    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x, attention_mask, inner=None):
        return self.block(x, attention_mask=inner)


@pytest.mark.parametrize(
    'inner', [None, torch.zeros(2, 1, 10, 10), torch.ones(10, 10).tril()], ids=['none', '(B, 1, T, T)', '(T, T)']
)
def test_other_masks_of_blocks_leave_the_outer_one(inner):
    model, x, mask = blocks(Masked()), tokens(), ~hidden(10, 6)
    out = model(x, mask, inner)
    torch.testing.assert_close(out[1:, :6], model(x[1:, :6], mask[1:, :6]))
    assert (out[1, :6] - model(x, mask | True)[1, :6]).abs().max() > 1e-2
    torch.testing.assert_close(model(x, None, torch.ones(10, 10).triu()), model(x, None))  # of pairs of tokens


def test_a_mask_of_other_tokens_is_refused():
    model, x = blocks(Masked()), tokens()
    with pytest.raises(ValueError, match=r'attention_mask of Masked is \(2, 20\), but a norm inside got \(2, 10\)'):
        model(x, ~hidden(20, 6, tokens=20))
    inner = ~hidden(10, 3)
    torch.testing.assert_close(model(x, ~hidden(20, 6, tokens=20), inner), model(x, inner))


@pytest.mark.slow
@torch.no_grad()
def test_compiled_models_read_masks_inside():
    torch.manual_seed(9)
    model, x, lengths = Classifier().eval(), tokens(), torch.tensor([6, 10])
    replace_norms(model, dict(type='IN'), grid='sequence')
    expected = randomized(model)(x, lengths)
    torch.testing.assert_close(torch.compile(model, backend='eager')(x, lengths), expected)
