"""Hooks of mmengine's runner."""

from tokennorm.engine.hooks.checkpoint import CheckpointHook
from tokennorm.engine.hooks.data_errors import DataErrorHook
from tokennorm.engine.hooks.early_stopping import EarlyStoppingHook
from tokennorm.engine.hooks.non_finite import NonFiniteHook

__all__ = ['CheckpointHook', 'DataErrorHook', 'EarlyStoppingHook', 'NonFiniteHook']
