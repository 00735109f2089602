"""Comparison of weights and checkpoints."""

import os

import numpy as np
import torch

from tests.helpers.pvt import ARCH
from tokennorm.backbones import PVT


class Planted:
    """Runs code where it is unpickled: it makes a folder."""

    def __init__(self, folder):
        self.path = str(folder / 'ran')

    def __reduce__(self):
        return (os.mkdir, (self.path,))


def pretrained(path, **kwargs):
    model = PVT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=str(path)), **kwargs)
    model.init_weights()
    return model


def assert_same_weights(actual, expected):
    for key, value in expected.state_dict().items():
        assert torch.equal(actual.state_dict()[key], value), key


def assert_same_checkpoints(path, expected_path, *parts):
    """By default the weights are compared."""
    actual, expected = (torch.load(one, weights_only=False) for one in (path, expected_path))
    for part in parts or ['state_dict']:
        assert_same(part, actual[part], expected[part])


def assert_same(name, actual, expected):
    assert type(actual) is type(expected), name
    if isinstance(expected, dict):
        assert list(actual) == list(expected), name
        for key in expected:
            assert_same(f'{name}.{key}', actual[key], expected[key])
    elif isinstance(expected, list | tuple):
        for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same(f'{name}.{i}', one, other)
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype, name
        np.testing.assert_array_equal(actual, expected, name)
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(actual, expected), name
    else:
        assert actual == expected, name
