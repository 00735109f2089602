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

_CLASSES = (
    BatchNorm, Derf, DTN, DynamicTanh, GroupNorm, InstanceNorm, LayerNorm, LocalLayerNorm, PowerNorm, PRepBN, RMSNorm,
    ScaleNorm, SeeDNorm, SwitchableNorm, SyncBatchNorm, TaperNorm,
)  # fmt: skip
_SHORT_NAMES = {
    'BN': BatchNorm,
    'DyT': DynamicTanh,
    'GN': GroupNorm,
    'IN': InstanceNorm,
    'LN': LayerNorm,
    'SN': SwitchableNorm,
    'SyncBN': SyncBatchNorm,
}
NORMS: dict[str, type] = {cls.__name__: cls for cls in _CLASSES} | _SHORT_NAMES
