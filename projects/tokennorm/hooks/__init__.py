"""Hooks that mmengine's runner calls back."""

from tokennorm.hooks.checkpoint import CheckpointHook
from tokennorm.hooks.report import ReportHook

__all__ = ['CheckpointHook', 'ReportHook']
