"""The generated dataset of shapes, for the demo, the study and the tests."""

from experiments.shapes.dataset import CLASSES, make_shapes_dataset

__all__ = ['CLASSES', 'make_shapes_dataset']
