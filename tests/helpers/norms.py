"""All normalizers by name, and DTN's parameters under the names of its authors."""

import torch

from tokennorm import norms

SHORT = {'BN', 'DyT', 'GN', 'IN', 'LN', 'SN', 'SyncBN'}
LONG = {norms.NORMS[name].__name__ for name in SHORT}
NORMS = {name: cls for name, cls in norms.NORMS.items() if name not in LONG}

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


def seen_by(model, names, *args):
    """What the norms of these names are given and give, in a forward pass."""
    seen = {}
    handles = [
        model.get_submodule(name).norm.register_forward_hook(
            lambda module, args, out, name=name: seen.update({name: (*args, out)})
        )
        for name in names
    ]
    model(*args)
    for handle in handles:
        handle.remove()
    return seen
