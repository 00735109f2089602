"""Folders in COCO format: finding, checking, splitting, and pointing a config at them."""
