"""Random calls of DTN's CPU kernel, compared with the float64 transcription: result and all gradients.

    python -m tests.fuzz_dtn --cases 2000 --seed 1000

Prints the largest errors, relative to the largest entry. Stops at the first case whose error is more than ten times
that of the eager form and above the dtype's tolerance. A case depends on its seed only.
"""

import argparse
import random

import torch
import torch.nn.functional as F

from tests.reference import dense_dtn
from tokennorm.ops.cpu import kernel
from tokennorm.ops.dtn import dtn
from tokennorm.ops.dtn_eager import eager_dtn

NAMES = ('y', 'x', 'weight', 'bias', 'mean_logit', 'var_logit', 'position')
# Of the result, of the gradient of the tokens and of other gradients, relative to the largest entry.
ERRORS = {torch.float32: (2e-6, 1e-4, 1e-4), torch.float16: (1e-3, 5e-3, 5e-3), torch.bfloat16: (8e-3, 4e-2, 4e-2)}


def arguments(batch, height, width, channels, heads, a1=None):
    """Random tokens and parameters in float64; positions as large as learned ones, or all with the given a1."""
    position = 0.5 * torch.randn(heads, 3) - torch.tensor([0.5, 0, 0])
    if a1 is not None:
        position[:, 0] = a1
    x = 2 * torch.randn(batch, height, width, channels) + 1
    rest = torch.rand(channels) + 0.5, torch.randn(channels), torch.randn(heads), torch.randn(heads), position
    return [t.double() for t in (x, *rest)]


def dense(x, weight, bias, mean_logit, var_logit, position, eps=1e-5, pool=1, valid=None):
    """The transcription, image by image on its valid part; LayerNorm outside."""
    rest = weight, bias, mean_logit, var_logit, position, eps, pool
    if valid is None:
        return dense_dtn(x.flatten(1, 2), tuple(x.shape[1:3]), *rest).view(x.shape)
    rows = []
    for image, (height, width) in zip(x, valid.tolist(), strict=True):
        inside = dense(image[None, :height, :width], *rest)
        outside = F.layer_norm(image, image.shape[-1:], weight, bias, eps)
        row = torch.cat([inside[0], outside[:height, width:]], dim=1)
        rows.append(torch.cat([row, outside[height:]], dim=0))
    return torch.stack(rows)


def forward_and_gradients(function, args, dtype, grad_y, **kwargs):
    """The result and the gradients of all arguments; tokens in `dtype`, parameters in float32 at least."""
    parameter_dtype = torch.promote_types(dtype, torch.float32)
    dtypes = [dtype] + [parameter_dtype] * 5
    args = [None if t is None else t.to(d).detach().requires_grad_() for t, d in zip(args, dtypes, strict=True)]
    y = function(*args, **kwargs)
    gradients = iter(torch.autograd.grad(y, [t for t in args if t is not None], grad_y.to(y.dtype)))
    return y.detach(), *(None if t is None else next(gradients) for t in args)


def errors(actual, expected, grad_y):
    """By name, the largest error relative to the largest entry."""
    found = {}
    for name, a, e in zip(NAMES, actual, expected, strict=True):
        if a is not None:
            assert a.isfinite().all(), name
            # Some gradients vanish, as that of the position of a single token: compare with the gradients at large.
            found[name] = ((a - e).abs().max() / e.abs().max().clamp(min=1e-2 * grad_y.abs().max())).item()
    return found


def assert_equals_dense(args, dtype=torch.float32, grad_y=None, function=dtn, allowed=ERRORS, **kwargs):
    """Result and gradients of arguments in float64, of which the tokens are rounded first; returns what was found."""
    grad_y = torch.randn(args[0].shape).double() if grad_y is None else grad_y
    args = [args[0].to(dtype).double(), *args[1:]]
    actual = forward_and_gradients(function, args, dtype, grad_y, **kwargs)
    expected = forward_and_gradients(dense, args, torch.float64, grad_y.to(dtype).double(), **kwargs)
    assert actual[0].dtype == dtype
    for name, error in errors(actual, expected, grad_y).items():
        assert error <= allowed[dtype][min(NAMES.index(name), 2)], f'{name}: relative error {error:.1e}'
    return actual


def random_case(seed, largest=24):
    """Arguments of `dtn` in float64, the dtype of the tokens, and keyword arguments."""
    torch.manual_seed(seed)
    r = random.Random(seed)
    grids = [(r.randint(1, largest), r.randint(1, 2 * largest))] * 4
    grids += [(1, r.randint(1, 400)), (r.randint(1, 400), 1), (r.randint(128, 200), 4), (3, r.randint(65, 230))]
    batch, (height, width) = r.randint(1, 3), r.choice(grids)
    heads, pool = r.choice([1, 2, 3, 5]), r.choice([1, 1, 2, 3, 4, 1000])
    head_dim = r.choice([1, 3, 8, 16, 20, 40])
    channels = heads * (head_dim if heads * head_dim >= 5 else 8)
    args = arguments(batch, height, width, channels, heads, r.choice([None, -100, -1, -0.3, -0.02, 0, 0.02]))
    args[-1][:, 0].clamp_(max=0.02)
    args[0] = (args[0] + r.choice([0, 0, 100])) * r.choice([1, 1, 1e-3, 100])
    if r.random() < 0.2:
        args[3 + r.randint(0, 1)][:] = r.choice([-20, -8, 8, 20, 100])
    if r.random() < 0.1:
        args[3] = None
    valid = [[r.randint(1, height), r.randint(1, width)] for _ in range(batch)]
    kwargs = dict(eps=r.choice([1e-6, 1e-5, 1e-3]), pool=pool, valid=torch.tensor(valid) if r.random() < 0.4 else None)
    return args, r.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16]), kwargs


def compare(seed, largest=24):
    """Errors of a random case, by name; None if the kernel does not take the case or the dtype its result."""
    args, dtype, kwargs = random_case(seed, largest)
    args[0] = args[0].to(dtype).double()
    grad_y = torch.randn(args[0].shape).to(dtype).double()
    if not kernel.takes(args[0].to(dtype), args[-1], min(kwargs['pool'], 400)):
        return None
    torch.set_num_threads(1 + seed % 3)
    expected = forward_and_gradients(dense, args, torch.float64, grad_y, **kwargs)
    if expected[0].abs().max() > torch.finfo(dtype).max:
        return None
    actual, eager = (forward_and_gradients(f, args, dtype, grad_y, **kwargs) for f in (dtn, eager_dtn))
    found, others = (errors(results, expected, grad_y) for results in (actual, eager))
    for name, error in found.items():
        allowed = max(ERRORS[dtype][min(NAMES.index(name), 2)], 10 * others[name])
        assert error <= allowed, f'seed {seed}, {name}: error {error:.1e}, of the eager form {others[name]:.1e}'
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--cases', type=int, default=200)
    parser.add_argument('--seed', type=int, default=0, help='of the first case')
    args = parser.parse_args()
    assert kernel.library() is not None, 'no kernel'
    taken = [found for seed in range(args.seed, args.seed + args.cases) if (found := compare(seed))]
    worst = {name: f'{max(found.get(name, 0) for found in taken):.1e}' for name in NAMES}
    print(f'{len(taken)} of {args.cases} cases took the kernel; largest errors {worst}')


if __name__ == '__main__':
    main()
