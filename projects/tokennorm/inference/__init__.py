"""Detection with trained models: images, folders, videos, tiles, tracking. It imports no training."""

from tokennorm.environment import hide_onedl_message

hide_onedl_message()
