"""DTN under torch.compile: the CPU kernel with the numbers of the uncompiled call, or one graph of the eager form."""

import pytest
import torch

from tokennorm.norms import DTN
from tokennorm.ops.cpu import kernel

pytestmark = pytest.mark.compiler

VALID = torch.tensor([[9, 7], [4, 5]])


@pytest.fixture(autouse=True)
def no_earlier_graphs():
    torch.compiler.reset()


@pytest.fixture
def kernel_calls(monkeypatch):
    """Names of the kernel's functions that were called."""
    calls = []
    call = kernel._call

    def record(function, *args, **others):
        calls.append(function)
        call(function, *args, **others)

    monkeypatch.setattr(kernel, '_call', record)
    return calls


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
@pytest.mark.parametrize('only_var', [False, True])
def test_compiled_step_equals_the_uncompiled_one(dtype, only_var, kernel_calls):
    norm = DTN(12, 3, pool=2, only_var=only_var)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter += torch.randn_like(parameter) / 4
    x = torch.randn(2, 9, 7, 12).to(dtype).requires_grad_()
    results = []
    for function in (norm, torch.compile(lambda *args: norm(*args) * 1, backend='aot_eager')):
        y = function(x, VALID)
        results.append([y, *torch.autograd.grad(y, [x, *norm.parameters()], torch.ones_like(y).cumsum(1))])
    assert kernel_calls == 2 * ['dtn_forward', 'dtn_backward']
    for actual, expected in zip(results[1], results[0], strict=True):
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)


@pytest.mark.parametrize('strict', [False, True])
def test_an_exported_program_has_operations_of_torch_only(strict):
    program = torch.export.export(DTN(12, 3), (torch.randn(2, 9, 7, 12),), strict=strict)
    assert not [node for node in program.graph.nodes if 'tokennorm' in str(node.target)]
