"""DTN's form for exported files against the dense float64 transcription, in PyTorch and in onnxruntime."""

import onnxruntime
import pytest
import torch
from torch.export import Dim
from torch.fx.experimental import _config as symbolic_sizes

from tests.fuzz_dtn import arguments, assert_equals_dense
from tests.helpers.cases import slow
from tests.helpers.compare import assert_near
from tokennorm.norms import DTN
from tokennorm.ops.dtn import dtn
from tokennorm.ops.dtn_eager import eager_dtn
from tokennorm.ops.dtn_export import exported_dtn

# batch, height, width, channels, heads, pool: why
CASES = [
    (2, 8, 9, 12, 4, 1),  # several heads
    (2, 5, 9, 6, 1, 1),  # one head
    (2, 8, 12, 8, 2, 4),  # pooled, whole cells
    (3, 9, 7, 8, 2, 2),  # pooled, partial cells
    (2, 8, 4, 6, 1, 2),  # pooled, one head
    (1, 3, 2, 8, 2, 4),  # pooled into one cell
]


@pytest.mark.parametrize('with_mean', [True, False])
@pytest.mark.parametrize(('batch', 'height', 'width', 'channels', 'heads', 'pool'), CASES)
def test_equals_the_dense_transcription(batch, height, width, channels, heads, pool, with_mean):
    valid = torch.randint(1, 14, (batch, 2)).clamp(max=torch.tensor([height, width]))
    for sides in (None, valid):
        args = arguments(batch, height, width, channels, heads)
        args[3] = args[3] if with_mean else None
        assert_equals_dense(args, pool=pool, valid=sides, function=exported_dtn)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_loses_only_its_own_digits(dtype):
    assert_equals_dense(arguments(2, 8, 12, 8, 2), dtype, pool=2, function=exported_dtn)


@pytest.mark.parametrize('pool', [1, 2])
def test_channels_with_a_large_offset_lose_no_more_digits_than_in_the_eager_form(pool):
    args = arguments(1, 8, 8, 8, 2)
    args[0] = args[0] + 1000 * torch.randn(8).double()
    expected = dtn(*args, pool=pool)
    actual, eager = (f(*(t.float() for t in args), pool=pool).double() for f in (exported_dtn, eager_dtn))
    assert (actual - expected).abs().max() < 2 * (eager - expected).abs().max() + 1e-6


def test_lambda_near_its_limits():
    for logit in (-100.0, -20.0, 20.0, 100.0):
        args = arguments(1, 6, 4, 6, 2)
        args[3][:], args[4][:] = logit, -logit
        assert_near('y', exported_dtn(*(t.float() for t in args), pool=2).double(), eager_dtn(*args, pool=2))


class WithSizes(torch.nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.norm = DTN(8, num_heads=2, pool=pool)

    def forward(self, x, valid):
        return self.norm(x, valid)


@pytest.mark.parametrize('strict', [False, slow(True)])
def test_an_exported_layer_reads_tokens_without_selecting_any(strict):
    example = torch.randn(2, 8, 4, 8), torch.tensor([[8, 4], [3, 2]])
    program = torch.export.export(WithSizes(2), example, strict=strict)
    of_tokens = [str(n.target) for n in program.graph.nodes if getattr(n.meta.get('val'), 'numel', int)() >= 512]
    assert of_tokens
    assert not [name for name in of_tokens if 'where' in name or 'pad' in name or 'pool' in name]


@pytest.mark.slow
@pytest.mark.parametrize('pool', [1, 3])
def test_a_file_for_any_size_in_onnxruntime(pool, tmp_path):
    norm = WithSizes(pool)
    for p in norm.parameters():
        torch.nn.init.normal_(p)
    batch, height, width = (Dim(name, min=1, max=1024) for name in ('batch', 'height', 'width'))
    example = torch.randn(2, 10, 7, 8), torch.tensor([[10, 7], [3, 2]])
    with symbolic_sizes.patch(backed_size_oblivious=True):
        program = torch.export.export(
            norm,
            example,
            dynamic_shapes=({0: batch, 1: height, 2: width}, {0: batch}),
            strict=False,
            prefer_deferred_runtime_asserts_over_guards=True,
        )
        torch.onnx.export(program, dynamo=True, opset_version=18, verbose=False).save(tmp_path / 'norm.onnx')
    session = onnxruntime.InferenceSession(tmp_path / 'norm.onnx')
    names = [value.name for value in session.get_inputs()]
    for shape, valid in (((3, 9, 6), [[9, 6], [4, 1], [0, 9]]), ((1, 1, 8), [[1, 7]]), ((1, 11, 13), [[11, 13]])):
        x, valid = torch.randn(*shape, 8), torch.tensor(valid)
        found = session.run(None, dict(zip(names, (x.numpy(), valid.numpy()), strict=True)))[0]
        assert_near('y', torch.from_numpy(found), norm(x, valid).detach())
