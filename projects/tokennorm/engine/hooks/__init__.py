"""Hooks of training."""
