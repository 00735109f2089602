"""Version, and what mmcv's `get_compiler_version` and `get_compiling_cuda_version` return."""

import torch
import torchvision

__version__ = '1.1.1'


def get_compiler_version() -> str:
    return f'none: mmcv_ops {__version__}, operators of torchvision {torchvision.__version__}'


def get_compiling_cuda_version() -> str:
    return torch.version.cuda or 'not available'
