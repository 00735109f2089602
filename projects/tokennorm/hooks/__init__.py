"""Hooks that mmengine's runner calls back."""

from tokennorm.hooks.lambda_hook import LambdaHook
from tokennorm.hooks.report import ReportHook

__all__ = ['LambdaHook', 'ReportHook']
