"""The arithmetic of the normalizers: pure functions on tensors."""

from tokennorm.ops.dtn import dtn

__all__ = ['dtn']
