"""Writes whole detectors as ONNX, PyTorch (.pt2) and OpenVINO files, and runs them.

Importing the package imports nothing else: `tokennorm.export.runtime` works without PyTorch.
"""
