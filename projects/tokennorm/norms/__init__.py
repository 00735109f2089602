"""Normalizers of token grids (B, H, W, C). They need only torch and einops.

All take `num_features`, the channels C, and `eps`, which is added to the variance where nothing else is said. `weight`
and `bias` are gamma and beta (C,). `valid`, int (B, 2), is the height and width, in tokens, of the part of each grid
that is image: statistics across tokens are computed over that part only. `NORMS` has their names in configs.
"""

from tokennorm.norms.batch_norm import BatchNorm, SyncBatchNorm
from tokennorm.norms.derf import Derf
from tokennorm.norms.dtn import DTN
from tokennorm.norms.dynamic_tanh import DynamicTanh
from tokennorm.norms.group_norm import GroupNorm
from tokennorm.norms.instance_norm import InstanceNorm
from tokennorm.norms.layer_norm import LayerNorm
from tokennorm.norms.local_layer_norm import LocalLayerNorm
from tokennorm.norms.power_norm import PowerNorm
from tokennorm.norms.prepbn import PRepBN
from tokennorm.norms.rms_norm import RMSNorm
from tokennorm.norms.scale_norm import ScaleNorm
from tokennorm.norms.seed_norm import SeeDNorm
from tokennorm.norms.switchable_norm import SwitchableNorm
from tokennorm.norms.taper_norm import TaperNorm

NORMS: dict[str, type] = {
    'BN': BatchNorm,
    'BatchNorm': BatchNorm,
    'DTN': DTN,
    'Derf': Derf,
    'DyT': DynamicTanh,
    'DynamicTanh': DynamicTanh,
    'GN': GroupNorm,
    'GroupNorm': GroupNorm,
    'IN': InstanceNorm,
    'InstanceNorm': InstanceNorm,
    'LN': LayerNorm,
    'LayerNorm': LayerNorm,
    'LocalLayerNorm': LocalLayerNorm,
    'PRepBN': PRepBN,
    'PowerNorm': PowerNorm,
    'RMSNorm': RMSNorm,
    'SN': SwitchableNorm,
    'SwitchableNorm': SwitchableNorm,
    'ScaleNorm': ScaleNorm,
    'SeeDNorm': SeeDNorm,
    'SyncBN': SyncBatchNorm,
    'SyncBatchNorm': SyncBatchNorm,
    'TaperNorm': TaperNorm,
}

__all__ = [
    'DTN',
    'NORMS',
    'BatchNorm',
    'Derf',
    'DynamicTanh',
    'GroupNorm',
    'InstanceNorm',
    'LayerNorm',
    'LocalLayerNorm',
    'PRepBN',
    'PowerNorm',
    'RMSNorm',
    'ScaleNorm',
    'SeeDNorm',
    'SwitchableNorm',
    'SyncBatchNorm',
    'TaperNorm',
]
