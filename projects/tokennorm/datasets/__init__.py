"""Datasets that the package can make itself."""

from tokennorm.datasets.synthetic import CLASSES, METAINFO, make_shapes_dataset

__all__ = ['CLASSES', 'METAINFO', 'make_shapes_dataset']
