"""The user's datasets in COCO, YOLO, Pascal VOC or class-folder format."""
