"""The largest errors of DTN and LayerNorm against float64, relative to the largest entry: result and gradients.

python benchmarks/dtn_errors.py
"""

import torch
import torch.nn.functional as F
from measuring import print_table

from tokennorm.ops.dtn import dtn

NAMES = ('y', 'x', 'weight', 'bias', 'mean_logit', 'var_logit', 'position')


def main() -> None:
    torch.manual_seed(0)
    rows = []
    for offset in (0, 1e4):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for a1 in (-1, -0.02, 0.02):
                rows.append(errors(f'DTN, a1 {a1}', dtype, offset, a1))
            rows.append(errors('LayerNorm', dtype, offset, None))
    print_table(rows)


def errors(name: str, dtype: torch.dtype, offset: float, a1: float | None) -> dict[str, str]:
    """One row: 4 x 28 x 28 tokens of 64 channels in 4 heads, both sides with the same rounded inputs."""
    x = (2 * torch.randn(4, 28, 28, 64) + offset).to(dtype)
    grad_y = torch.randn_like(x)
    args = [x, torch.rand(64) + 0.5, torch.randn(64)]
    if a1 is not None:
        args += [torch.randn(4), torch.randn(4), torch.cat([torch.full((4, 1), a1), 0.3 * torch.randn(4, 2)], dim=1)]

    def run(wide: bool) -> list[torch.Tensor]:
        inputs = [(t.double() if wide else t).detach().requires_grad_() for t in args]
        if a1 is None:
            weight, bias = (t.to(inputs[0].dtype) for t in inputs[1:])
            y = F.layer_norm(inputs[0], (64,), weight, bias)
        else:
            y = dtn(*inputs)
        return [y, *torch.autograd.grad(y, inputs, grad_y.to(y.dtype))]

    figures = [
        ((a.double() - e).abs().max() / e.abs().max().clamp(min=1e-6)).item()
        for a, e in zip(run(False), run(True), strict=True)
    ]
    cells = {key: f'{value:.0e}' for key, value in zip(NAMES, figures, strict=False)}
    return {'norm': name, 'dtype': str(dtype)[6:], 'offset': f'{offset:g}'} | {n: cells.get(n, '-') for n in NAMES}


if __name__ == '__main__':
    main()
