"""Comparison of recipes for fine-tuning."""
