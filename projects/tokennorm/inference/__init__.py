"""Detection with trained models: images, folders, videos, tiles, tracking. It imports no training."""
