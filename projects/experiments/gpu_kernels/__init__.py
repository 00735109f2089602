"""DTN in Triton, for NVIDIA GPUs. Importing this package switches it on."""

from importlib import import_module

from experiments.gpu_kernels.dtn_triton import triton_dtn

import_module('tokennorm.ops.dtn').gpu_dtn = triton_dtn  # type: ignore[attr-defined]

__all__ = ['triton_dtn']
