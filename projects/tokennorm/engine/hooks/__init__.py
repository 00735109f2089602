"""Hooks of mmengine's runner."""

from tokennorm.engine.hooks.checkpoint import CheckpointHook, EarlyStoppingHook
from tokennorm.engine.hooks.errors import DataErrorHook, NonFiniteHook

__all__ = ['CheckpointHook', 'DataErrorHook', 'EarlyStoppingHook', 'NonFiniteHook']
