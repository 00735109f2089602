"""DTN on NVIDIA GPUs with products in Triton. Importing this package switches them on."""

from importlib import import_module

from experiments.gpu_kernels.dtn_triton import triton_dtn

import_module('tokennorm.ops.dtn').gpu_dtn = triton_dtn  # type: ignore[attr-defined]

__all__ = ['triton_dtn']
