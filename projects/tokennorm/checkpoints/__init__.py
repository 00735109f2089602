"""State dicts published elsewhere to TokenNorm's keys, and loading them with a report.

Each `from_published_*` takes a state dict of a known layout, or TokenNorm's, which it does not change. It returns a new
one for `load_state_dict(strict=True)`, without a classifier's linear head. Keys that the layout does not have stay.
"""

from tokennorm.checkpoints.loading import LoadReport, check_fit, convert_detector, load_pretrained
from tokennorm.checkpoints.norms import from_published_dtn
from tokennorm.checkpoints.pvt import from_published_pvt, from_published_pvt_v2
from tokennorm.checkpoints.safe_reading import (
    Checkpoint,
    CheckpointError,
    find_checkpoint,
    read_checkpoint,
    read_state_dict,
)
from tokennorm.checkpoints.swin import from_published_swin
from tokennorm.checkpoints.vit import from_published_vit

__all__ = [
    'Checkpoint',
    'CheckpointError',
    'LoadReport',
    'check_fit',
    'convert_detector',
    'find_checkpoint',
    'from_published_dtn',
    'from_published_pvt',
    'from_published_pvt_v2',
    'from_published_swin',
    'from_published_vit',
    'load_pretrained',
    'read_checkpoint',
    'read_state_dict',
]
