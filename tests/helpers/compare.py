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
