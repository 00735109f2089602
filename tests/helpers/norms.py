"""All normalizers by name."""

from tokennorm import norms

NORMS = {
    'LN': norms.LayerNorm,
    'DTN': norms.DTN,
    'BN': norms.BatchNorm,
    'SyncBN': norms.SyncBatchNorm,
    'IN': norms.InstanceNorm,
    'GN': norms.GroupNorm,
    'SN': norms.SwitchableNorm,
    'ScaleNorm': norms.ScaleNorm,
    'PowerNorm': norms.PowerNorm,
    'LocalLayerNorm': norms.LocalLayerNorm,
    'RMSNorm': norms.RMSNorm,
    'DyT': norms.DynamicTanh,
    'Derf': norms.Derf,
    'PRepBN': norms.PRepBN,
}

OWN_ARGUMENTS = {'GN': dict(num_groups=4)}


def cfg_of(name):
    return dict(type=name, **OWN_ARGUMENTS.get(name, {}))
