"""Parameters of PRepBN as the authors of SLAB name them (xinghaochen/SLAB)."""

import re

import torch

from tokennorm.checkpoints.layouts import Converted, StateDict

_REP_BN = re.compile(r'(.*norm\d?\.)(alpha|bn\..*)')


def from_published_slab(state_dict: StateDict) -> Converted:
    """Renames the parameters of normalization layers in SLAB's PVT, Swin and DeiT to those of `PRepBN`.

    Where the authors have no LayerNorm, its weight is 1 and its bias 0, and the mixing is completed. Any other state
    dict is copied. The result has the authors' names otherwise.
    """
    linear_norms = {key.removesuffix('total_step') for key in state_dict if key.endswith('.total_step')}
    rep_bns = {match[1] for key in state_dict if (match := _REP_BN.fullmatch(key))} - {
        f'{prefix}norm2.' for prefix in linear_norms
    }
    converted = Converted({})
    for key, value in state_dict.items():
        prefix = next((p for p in _prefixes(key) if p in linear_norms or p in rep_bns), None)
        own = key.removeprefix(prefix or '')
        if prefix is None:
            converted[key] = value
        elif own == 'iter':
            converted[f'{prefix}step'] = state_dict[f'{prefix}total_step'].long() - state_dict[key].long()
        elif own == 'alpha' or own.startswith(('norm1.', 'norm2.', 'bn.')):
            name = own.removeprefix('norm1.').removeprefix('norm2.')
            converted[prefix + (f'batch_norm.{name}' if name.startswith('bn.') else name)] = value
        else:
            converted.unused.append(key)  # warm and total_step
    for prefix in rep_bns:
        weight = state_dict[f'{prefix}bn.weight']
        converted.update({f'{prefix}weight': torch.ones_like(weight), f'{prefix}bias': torch.zeros_like(weight)})
        converted[f'{prefix}step'] = torch.tensor(300_000)
    return converted


def _prefixes(key: str) -> list[str]:
    """All beginnings of a name that end in a dot, the longest last."""
    return [key[: i + 1] for i, letter in enumerate(key) if letter == '.']
