"""Datasets in COCO format: finding and inspection; detections in its format."""
