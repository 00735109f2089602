"""Half precision is computed in float32: mmcv's own kernels have no bfloat16, and torchvision's no half on a CPU."""

from torch import Tensor


def float32(*tensors: Tensor | None) -> list:
    """Returns the tensors with float16 and bfloat16 converted to float32. Others are unchanged."""
    return [t.float() if t is not None and t.is_floating_point() and t.element_size() < 4 else t for t in tensors]


def float64(*tensors: Tensor) -> list:
    """Returns the tensors in float64, for areas that are differences of products. Apple's GPUs have float32 only."""
    return [t.float() if t.device.type == 'mps' else t.double() for t in tensors]
