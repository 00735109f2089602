"""DTN's CPU kernel under torch.compile: the numbers of the uncompiled call, and where the eager form runs."""

import pytest
import torch

from tests.helpers.cases import slow
from tokennorm.norms import DTN
from tokennorm.ops.cpu import operator
from tokennorm.ops.dtn_eager import eager_dtn

pytestmark = pytest.mark.compiler

VALID = torch.tensor([[9, 7], [4, 5]])


@pytest.fixture(autouse=True)
def no_earlier_graphs():
    torch.compiler.reset()


@pytest.mark.parametrize(
    ('dtype', 'only_var'), [(torch.float32, False), slow(torch.float32, True), slow(torch.bfloat16, False)]
)
def test_compiled_step_equals_the_uncompiled_one(dtype, only_var, kernel_calls):
    norm = DTN(12, 3, pool=2, only_var=only_var)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter += torch.randn_like(parameter) / 4
    x = torch.randn(2, 9, 7, 12).to(dtype).requires_grad_()
    results = []
    for function in (norm, torch.compile(norm, fullgraph=True, backend='aot_eager')):
        y = function(x, VALID)
        results.append([y, *torch.autograd.grad(y, [x, *norm.parameters()], torch.ones_like(y).cumsum(1))])
    assert kernel_calls == 2 * ['dtn_forward', 'dtn_backward']
    for actual, expected in zip(results[1], results[0], strict=True):
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)


@pytest.mark.parametrize(('dtype', 'has_mean_logit'), [(torch.float16, True), slow(torch.float32, False)])
@pytest.mark.parametrize(('a1', 'pool', 'takes'), [(-1, 1000, True), (10, 1, False)])
def test_the_operator_keeps_what_torch_asks_of_operators(dtype, has_mean_logit, a1, pool, takes, kernel_calls):
    """Shapes and dtypes without computing, and gradients; where the kernel does not take P, those of the eager form."""
    position = torch.randn(3, 3) / 4 + torch.tensor([a1, 0, 0])
    x, *parameters = torch.randn(2, 9, 7, 12).to(dtype), torch.rand(12), torch.randn(12), torch.randn(3), position
    args = [t.requires_grad_() for t in (x, *parameters)]
    args.insert(3, torch.randn(3).requires_grad_() if has_mean_logit else None)
    torch.library.opcheck(operator.dtn_forward, (*args, 1e-5, pool, VALID))
    assert bool(kernel_calls) == takes
    if takes:
        return
    wanted = [t for t in args if t is not None]
    actual, expected = operator.dtn_forward(*args, 1e-5, pool, VALID)[0], eager_dtn(*args, valid=VALID)
    assert torch.equal(actual, expected)
    grad_y = torch.ones_like(actual).cumsum(1)
    for a, e in zip(*(torch.autograd.grad(y, wanted, grad_y) for y in (actual, expected)), strict=True):
        assert torch.equal(a, e)


@pytest.mark.parametrize('a1', [-1.0, 10.0])
def test_results_are_contiguous_as_the_compiler_expects(a1):
    norm = DTN(12, 3)
    with torch.no_grad():
        norm.position[:, 0] = a1
    x, grad_y = (torch.randn(2, 12, 9, 7).permute(0, 2, 3, 1) for _ in range(2))
    x.requires_grad_()
    parameters = (norm.weight, norm.bias, norm.mean_logit, norm.var_logit, norm.position)
    y, _ = operator.dtn_forward(x, *parameters, 1e-5, 1, None)
    gradients = torch.autograd.grad(y, [x, *parameters], grad_y)
    assert all(t.is_contiguous() for t in (y, *gradients))


def test_parameters_on_another_device_raise():
    norm = DTN(12, 3)
    norm.bias = torch.nn.Parameter(torch.empty(12, device='meta'))
    with pytest.raises(Exception, match='all on the device of x'):
        torch.compile(norm, backend='aot_eager')(torch.randn(1, 4, 4, 12))


def test_no_tokens():
    norm = torch.compile(DTN(12, 3), fullgraph=True, backend='aot_eager')
    assert norm(torch.randn(0, 9, 7, 12)).shape == (0, 9, 7, 12)


@pytest.mark.slow
def test_transforms_inside_a_compiled_function_take_the_eager_form(kernel_calls):
    norm = DTN(12, 3)
    x = torch.randn(4, 2, 9, 7, 12)
    compiled = torch.compile(torch.func.vmap(norm), fullgraph=True, backend='aot_eager')
    torch.testing.assert_close(compiled(x), torch.stack([norm(part) for part in x]))
    assert kernel_calls == 4 * ['dtn_forward']


@pytest.mark.parametrize('strict', [False, slow(True)])
def test_an_exported_program_has_operations_of_torch_only(strict):
    program = torch.export.export(DTN(12, 3), (torch.randn(2, 9, 7, 12),), strict=strict)
    assert not [node for node in program.graph.nodes if 'tokennorm' in str(node.target)]
