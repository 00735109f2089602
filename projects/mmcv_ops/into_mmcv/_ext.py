"""mmcv's operators from torchvision and PyTorch. A compiled `_ext` in this folder takes precedence over this file."""

from mmcv_ops.ext import *  # noqa: F403
from mmcv_ops.ext import __getattr__  # noqa: F401  (operators that are not implemented)
