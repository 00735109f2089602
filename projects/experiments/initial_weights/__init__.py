"""Comparison of initial weights on small datasets."""
