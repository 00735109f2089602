"""Comparison of recipes for training on a CPU."""
