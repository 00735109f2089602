"""Constant padding instead of TensorFlow's 'same' padding, for inputs whose sides are multiples of the stride."""

import pytest
import torch
from timm.layers import Conv2dSame
from torch import nn

from tests.helpers.compare import assert_near
from tokennorm.export.detector import with_constant_padding


@pytest.mark.parametrize(
    ('kernel', 'stride', 'dilation'), [(3, 2, 1), (5, 2, 1), ((5, 3), (1, 2), 1), (3, 2, 2), (1, 2, 1)]
)
def test_constant_padding_gives_equal_outputs(kernel, stride, dilation):
    model = nn.Sequential(nn.Sequential(Conv2dSame(4, 6, kernel, stride=stride, dilation=dilation)), nn.ReLU())
    constant = with_constant_padding(model)
    assert not any(isinstance(module, Conv2dSame) for module in constant.modules())
    assert isinstance(model[0][0], Conv2dSame)
    x = torch.randn(2, 4, 12, 16)
    assert_near('outputs', constant(x), model(x))
