"""Models on a GPU that does not exist: PyTorch's fake tensors have a shape and a device, and no values.

An operation on tensors of two devices raises, as on a GPU. Backward passes need a real one.
"""

import contextlib

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


@contextlib.contextmanager
def fake_cuda(*models):
    """Models whose parameters and buffers are on a GPU. They cannot be used afterwards."""
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        for module in (part for model in models for part in model.modules()):
            for name, value in module._parameters.items():
                if value is not None:
                    fake = torch.empty_like(value, device='cuda')
                    module._parameters[name] = torch.nn.Parameter(fake, value.requires_grad)
            for name, value in module._buffers.items():
                if value is not None:
                    module._buffers[name] = torch.empty_like(value, device='cuda')
        yield


def tensors(values):
    """All tensors in nested lists, tuples and dictionaries."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        return tensors(list(values.values()))
    return [tensor for value in values for tensor in tensors(value)] if isinstance(values, list | tuple) else []


def devices(values):
    found = tensors(values)
    assert found
    return {tensor.device.type for tensor in found}
