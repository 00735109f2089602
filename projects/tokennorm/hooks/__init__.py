"""Hooks that mmengine's runner calls back."""

from tokennorm.hooks.checkpoint import CheckpointHook
from tokennorm.hooks.data_errors import DataErrorHook
from tokennorm.hooks.lambda_hook import LambdaHook
from tokennorm.hooks.non_finite import NonFiniteHook
from tokennorm.hooks.report import ReportHook

__all__ = ['CheckpointHook', 'DataErrorHook', 'LambdaHook', 'NonFiniteHook', 'ReportHook']
