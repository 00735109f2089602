"""Evaluation: a data set's detections, COCO AP, error analysis and score thresholds. It imports no training."""
