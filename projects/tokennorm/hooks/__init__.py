"""Hooks that mmengine's runner calls back."""

from tokennorm.hooks.report import ReportHook

__all__ = ['ReportHook']
