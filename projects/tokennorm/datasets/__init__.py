"""Datasets: generated ones, and the user's own in COCO, YOLO, Pascal VOC or class-folder format."""

from tokennorm.datasets.synthetic.shapes import CLASSES, METAINFO, make_shapes_dataset

__all__ = ['CLASSES', 'METAINFO', 'make_shapes_dataset']
