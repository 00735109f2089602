"""Writes whole detectors as ONNX, PyTorch (.pt2) and OpenVINO files, and runs them.

Importing the package imports nothing else: `tokennorm.inference.runtime` works without PyTorch.
"""
