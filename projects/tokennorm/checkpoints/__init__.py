"""State dicts published elsewhere to our keys (pure functions dict -> dict), and loading them with a report."""

from tokennorm.checkpoints.bias_tables import resize_bias_table
from tokennorm.checkpoints.class_token import without_class_token
from tokennorm.checkpoints.load_report import LoadReport
from tokennorm.checkpoints.loading import check_fit, load_from_init_cfg, load_pretrained
from tokennorm.checkpoints.position_embeddings import resize_positions
from tokennorm.checkpoints.published_dtn import from_published_dtn
from tokennorm.checkpoints.published_pvt import from_published_pvt
from tokennorm.checkpoints.published_pvt_v2 import from_published_pvt_v2
from tokennorm.checkpoints.published_swin import from_published_swin
from tokennorm.checkpoints.published_vit import from_published_vit
from tokennorm.checkpoints.reading import (
    CheckpointError,
    find_checkpoint,
    read_checkpoint,
    read_state_dict,
    trained_classes,
)

__all__ = [
    'CheckpointError',
    'LoadReport',
    'check_fit',
    'find_checkpoint',
    'from_published_dtn',
    'from_published_pvt',
    'from_published_pvt_v2',
    'from_published_swin',
    'from_published_vit',
    'load_from_init_cfg',
    'load_pretrained',
    'read_checkpoint',
    'read_state_dict',
    'resize_bias_table',
    'resize_positions',
    'trained_classes',
    'without_class_token',
]
