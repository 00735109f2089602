"""Tolerances, and a comparison that names the tensor."""

import torch

# Relative to the largest entry of the expected tensor.
TOLERANCE = {
    'forward': {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 4e-3, torch.float16: 5e-4},
    'backward': {torch.float64: 1e-9, torch.float32: 1e-4},
}


def assert_near(name, actual, expected, kind='forward', dtype=torch.float32):
    """Largest difference, relative to the largest expected entry, within the table's tolerance."""
    assert actual.shape == expected.shape, f'{name}: {tuple(actual.shape)} is not {tuple(expected.shape)}'
    scale = expected.abs().max().clamp(min=1e-30).double()
    error = ((actual.double() - expected.double()).abs().max() / scale).item()
    assert error <= TOLERANCE[kind][dtype], f'{name}: relative error {error:.2e}'


def assert_same_with_gradients(actual, expected, inputs, expected_inputs=None, dtype=torch.float64):
    """Two outputs, and the gradients that a random gradient of the output gives to the inputs, a dict by name."""
    assert_near('y', actual, expected, dtype=dtype)
    grad_y = torch.randn_like(actual)
    grads = [
        torch.autograd.grad(y, list(of.values()), grad_y.to(y.dtype), materialize_grads=True)
        for y, of in ((actual, inputs), (expected, expected_inputs or inputs))
    ]
    for name, a, e in zip(inputs, *grads, strict=True):
        assert_near(f'gradient of {name}', a, e, 'backward', dtype)
