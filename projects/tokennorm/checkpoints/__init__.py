"""State dicts published elsewhere to our keys: pure functions dict -> dict."""

from tokennorm.checkpoints.published_dtn import from_published_dtn

__all__ = ['from_published_dtn']
