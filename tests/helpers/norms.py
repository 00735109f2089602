"""All normalizers by name, and DTN's parameters under the names of its authors."""

import torch

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
    'SeeDNorm': norms.SeeDNorm,
    'TaperNorm': norms.TaperNorm,
}

OWN_ARGUMENTS = {'GN': dict(num_groups=4), 'SeeDNorm': dict(parts=4)}


def cfg_of(name):
    return dict(type=name, **OWN_ARGUMENTS.get(name, {}))


def published_dtn(state_dict):
    """A state dict with the DTN authors' names and order of axes."""
    renamed = {}
    for key, value in state_dict.items():
        if key.endswith('.position'):
            square, dx, dy = value.unbind(-1)
            renamed[key.replace('position', 'pos_proj.weight')] = torch.stack([-dx, -dy, square], dim=-1)
            renamed[key.replace('position', 'pos_proj.bias')] = torch.randn(len(value))
        else:
            renamed[key.replace('mean_logit', 'mean_norm_weight').replace('var_logit', 'var_norm_weight')] = value
    return renamed
