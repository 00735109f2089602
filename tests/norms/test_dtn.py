"""DTN against the dense float64 transcription, the paper's limits, and the published code's numbers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers.cases import slow
from tests.helpers.compare import assert_near
from tests.ops.test_dtn import CASES
from tests.reference import dense_dtn
from tokennorm.checkpoints import from_published_dtn
from tokennorm.norms import DTN
from tokennorm.norms.dtn import attention_centers
from tokennorm.ops.cpu import kernel
from tokennorm.ops.dtn_eager import inter_token_stats


@pytest.mark.parametrize('has_kernel', [True, slow(False)])
def test_torch_compile_traces_one_graph(has_kernel, monkeypatch):
    """With the CPU kernel as one operator, and without it through the eager form; at sizes that were not traced too."""
    torch.compiler.reset()
    if not has_kernel:
        monkeypatch.setattr(kernel, 'library', lambda: None)
    norm = DTN(8, 2)
    compiled = torch.compile(norm, backend='eager', fullgraph=True, dynamic=True)
    for size in [(5, 6), (7, 4)]:
        x = torch.randn(2, *size, 8)
        assert_near('compiled', compiled(x), norm(x))


def randomize(norm):
    """Parameters far from their start: a1 of both signs, lambda between 0.1 and 0.9."""
    for name, p in norm.named_parameters():
        nn.init.normal_(p, std=0.3 if name == 'position' else 1)
    return norm


def reference_of(norm, x, grid, **kwargs):
    """The transcription with the module's parameters; x (B, H, W, C) or (B, T, C)."""
    out = dense_dtn(
        x.reshape(x.shape[0], -1, x.shape[-1]),
        grid,
        norm.weight,
        norm.bias,
        norm.mean_logit,
        norm.var_logit,
        norm.position,
        eps=norm.eps,
        pool=norm.pool,
        published=norm.form == 'published',
        **kwargs,
    )
    return out.view(x.shape)


@pytest.mark.parametrize('only_var', [False, True])
@pytest.mark.parametrize('form', ['paper', 'published'])
@pytest.mark.parametrize(('batch', 'height', 'width', 'channels', 'heads', 'pool'), CASES)
def test_equals_the_dense_transcription(batch, height, width, channels, heads, pool, form, only_var):
    norm = randomize(DTN(channels, heads, pool=pool, form=form, only_var=only_var)).double()
    x = (3 * torch.randn(batch, height, width, channels) + 1).double().requires_grad_()
    grad_y = torch.randn_like(x)
    inputs = [x, *norm.parameters()]

    actual = norm(x)
    expected = reference_of(norm, x, (height, width))
    assert_near('y', actual, expected, dtype=torch.float64)
    names = ['x', *dict(norm.named_parameters())]
    actual_grads = torch.autograd.grad(actual, inputs, grad_y, allow_unused=True)
    expected_grads = torch.autograd.grad(expected, inputs, grad_y, allow_unused=True)
    for name, a, e in zip(names, actual_grads, expected_grads, strict=True):
        assert a is not None, f'{name} has no gradient'
        if e.abs().max() < 1e-9:  # a single token's statistics do not depend on its position
            assert a.abs().max() < 1e-9, name
        else:
            assert_near(f'gradient of {name}', a, e, 'backward', torch.float64)


def test_published_form_ignores_padding():
    norm = randomize(DTN(12, 4, form='published'))
    x = torch.randn(2, 5, 7, 12)
    assert torch.equal(norm(x, torch.tensor([[3, 7], [5, 2]])), norm(x))


def test_lambda_of_one_is_layer_norm():
    norm = randomize(DTN(12, 4))
    nn.init.constant_(norm.mean_logit, 100)
    nn.init.constant_(norm.var_logit, 100)
    x = torch.randn(2, 5, 7, 12)
    assert_near('y', norm(x), F.layer_norm(x, (12,), norm.weight, norm.bias, norm.eps))


def test_lambda_of_zero_with_uniform_weights_is_instance_norm():
    norm = randomize(DTN(12, 4))
    nn.init.constant_(norm.mean_logit, -100)
    nn.init.constant_(norm.var_logit, -100)
    nn.init.zeros_(norm.position)
    x = torch.randn(2, 5, 7, 12)
    expected = F.instance_norm(x.permute(0, 3, 1, 2), weight=norm.weight, bias=norm.bias, eps=norm.eps)
    assert_near('y', norm(x), expected.permute(0, 2, 3, 1))


def test_centers_are_those_of_equation_7():
    assert attention_centers(1).tolist() == [[0, 0]]
    assert attention_centers(4).tolist() == [[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]]
    nine = [[x, y] for x in (-1, 0, 1) for y in (-1, 0, 1)]
    assert attention_centers(9).tolist() == nine
    assert attention_centers(11).tolist() == nine + [[0, 0]] * 2
    position = DTN(18, 9).position
    assert position[:, 0].tolist() == [-1] * 9
    assert position[:, 1:].tolist() == [[2 * x, 2 * y] for x, y in nine]


def test_published_start_differs_beyond_the_square():
    published, paper = DTN(12, 6, form='published').position, DTN(12, 6).position
    assert torch.equal(published[:4], paper[:4])
    assert published[4:].abs().min() > 0
    assert published[4:].std() < 0.05
    assert DTN(12, 3).position[1:].tolist() == [[-1, 0, 0]] * 2


@pytest.mark.parametrize('a1', [-0.02, 0.02])
@pytest.mark.parametrize('grid', [(56, 56), (200, 336)])
def test_statistics_stay_sane_at_detector_grids(grid, a1):
    """P averages: each mean lies between the smallest and the largest token, each variance below a quarter range^2."""
    x = (100 + torch.randn(1, *grid, 4)).requires_grad_()
    position = torch.tensor([[a1, 0.1, -0.1]], requires_grad=True)
    mean, var = inter_token_stats(x, position)
    low, high = x.amin(dim=(1, 2)), x.amax(dim=(1, 2))
    assert (mean >= low - 1e-3).all()
    assert (mean <= high + 1e-3).all()
    assert (var >= 0).all()
    assert (var <= (high - low) ** 2 / 4).all()
    exact_mean, exact_var = inter_token_stats(x.double(), position.double())
    assert_near('mean', mean - 100, exact_mean - 100, kind='backward')
    assert_near('variance', var, exact_var, kind='backward')
    (mean.mean() + var.mean()).backward()
    assert x.grad.isfinite().all()
    assert position.grad.isfinite().all()


def test_what_a_rank_3_input_means():
    x = torch.randn(2, 12, 8)
    with pytest.raises(ValueError, match='grid='):
        DTN(8, 2)(x)
    with pytest.raises(ValueError, match='grid='):
        DTN(8, 2, grid=(5, 2))(x)
    with pytest.raises(ValueError, match='8 channels'):
        DTN(8, 2)(x.view(2, 4, 3, 8).transpose(1, 3))
    norm = DTN(8, 2, grid=(4, 3))
    assert torch.equal(norm(x), norm(x.view(2, 4, 3, 8)).view(2, 12, 8))
    sequence = DTN(8, 2, grid='sequence')
    assert torch.equal(sequence(x), sequence(x[:, None])[:, 0])


def test_names_of_the_parameters():
    assert list(DTN(8, 2).state_dict()) == ['weight', 'bias', 'mean_logit', 'var_logit', 'position']
    assert list(DTN(8, 2, only_var=True).state_dict()) == ['weight', 'bias', 'var_logit', 'position']


def load_published(case):
    """The published module's case as our module, its tokens and its parameters' gradients under our names."""
    params = {k.removeprefix('param.'): v for k, v in case.items() if k.startswith('param.')}
    grads = {k.removeprefix('grad.'): v for k, v in case.items() if k.startswith('grad.')}
    grid = tuple(case['resolution'].tolist())
    norm = DTN(
        case['x'].shape[-1],
        case['num_heads'],
        eps=case['eps'],
        pool=case['pool'],
        form='published',
        only_var=bool(case['only_var']),
        grid=grid,
    )
    norm.load_state_dict(from_published_dtn(params), strict=True)
    return norm, from_published_dtn(grads)


@pytest.mark.parametrize('name', ['vit_init', 'vit_trained', 'pvt_pool2', 'only_var'])
def test_published_form_gives_the_published_numbers(name, published_case):
    case = published_case(f'dtn_published_{name}.npz')
    norm, expected_grads = load_published(case)
    x = case['x'].requires_grad_()
    y = norm(x)
    assert_near('y', y, case['y'])
    y.backward(case['grad_y'])
    assert_near('gradient of x', x.grad, case['grad_x'], 'backward')
    for key, p in norm.named_parameters():
        assert_near(f'gradient of {key}', p.grad, expected_grads[key], 'backward')


def test_from_published_dtn_renames_and_turns_the_axes():
    published = {
        'norm1.mean_norm_weight': torch.ones(2),
        'norm1.var_norm_weight': torch.ones(2),
        'norm1.pos_proj.weight': torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        'norm1.pos_proj.bias': torch.zeros(2),
        'attn.pos_proj.weight': torch.ones(2, 3),  # not of a DTN
        'attn.pos_proj.bias': torch.zeros(2),
    }
    converted = from_published_dtn(published)
    renamed = {'norm1.mean_logit', 'norm1.var_logit', 'norm1.position'}
    assert set(converted) == renamed | {'attn.pos_proj.weight', 'attn.pos_proj.bias'}
    assert converted['norm1.position'].tolist() == [[3, -1, -2], [6, -4, -5]]
    bare = from_published_dtn({'pos_proj.weight': torch.ones(1, 3), 'var_norm_weight': torch.ones(1)})
    assert set(bare) == {'position', 'var_logit'}


@pytest.mark.gpu
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_autocast_on_cuda_gives_the_dtype_of_layer_norm(dtype):
    norm = randomize(DTN(12, 4)).cuda()
    x = torch.randn(2, 7, 9, 12, device='cuda', dtype=dtype)
    with torch.autocast('cuda', dtype=dtype):
        actual, layer_norm = norm(x), nn.LayerNorm(12).cuda()(x)
    assert actual.dtype == layer_norm.dtype == torch.float32
    assert_near('y', actual, reference_of(norm.cpu().double(), x.cpu().double(), (7, 9)).cuda())


def test_exported_graph_takes_any_batch_of_padded_images():
    norm = DTN(8, num_heads=2)
    batch = torch.export.Dim('batch', max=64)
    example = (torch.randn(2, 4, 5, 8), torch.tensor([[4, 5], [3, 2]]))
    program = torch.export.export(norm, example, dynamic_shapes=({0: batch}, {0: batch})).module()
    x, valid = torch.randn(3, 4, 5, 8), torch.tensor([[4, 5], [1, 5], [3, 3]])
    torch.testing.assert_close(program(x, valid), norm(x, valid), rtol=1e-5, atol=1e-5)
