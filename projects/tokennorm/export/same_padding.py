"""TensorFlow's 'same' padding of timm's `tf_` models, which depends on the image size, as constant padding."""

import copy

from torch import nn


def with_constant_padding(model: nn.Module) -> nn.Module:
    """Returns a copy of a model whose `Conv2dSame` have constant padding; the model itself if it has none.

    For kernel k and stride s, inputs whose sides are multiples of s get max(k - s, 0) rows and columns of zeros, and
    one more after than before if that is odd. Exported detectors pad images to multiples of the backbone's largest
    stride, so that the outputs are equal. torch.export takes hours for a graph with the general formula.
    """
    if not any(_is_same(module) for module in model.modules()):
        return model
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, conv in module.named_children():
            if _is_same(conv):
                padding: list[int] = []
                for kernel, stride, dilation in zip(conv.kernel_size, conv.stride, conv.dilation, strict=True):
                    total = max((kernel - 1) * dilation + 1 - stride, 0)
                    padding = [total // 2, total - total // 2, *padding]  # ZeroPad2d takes the last dimension first
                conv.__class__ = nn.Conv2d  # without the padding of its own
                setattr(module, name, nn.Sequential(nn.ZeroPad2d(tuple(padding)), conv))
    return model


def _is_same(module: nn.Module) -> bool:
    return type(module).__name__ == 'Conv2dSame'  # timm's, which may not be installed
