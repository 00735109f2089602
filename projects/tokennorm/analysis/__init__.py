"""Analysis of trained backbones: the metrics and figures of the DTN paper."""
