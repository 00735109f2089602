"""Metrics and figures of the DTN paper, of trained backbones."""
