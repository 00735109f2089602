"""SLAB's published weights of PVT, Swin and DeiT with PRepBN (xinghaochen/SLAB): `python slab.py SOURCE OUT.pth`

OUT is for the `init_cfg` of TokenNorm's backbones with `PRepBN` in `token_norm_cfg` and `norm_cfg`.
"""

import re
import sys
from pathlib import Path

import torch

from tokennorm.checkpoints import read_state_dict
from tokennorm.checkpoints.layouts import Converted, Names, StateDict, rename
from tokennorm.checkpoints.publication import to_bytes, write_new


def from_published_slab(state_dict: StateDict) -> Converted:
    """Renames the parameters of PRepBN in SLAB's PVT, Swin and DeiT (xinghaochen/SLAB) to those of `PRepBN`.

    Where the authors have no LayerNorm, its weight is 1 and its bias 0, and the mixing is completed. The result has the
    authors' names otherwise.
    """
    mixed = [key.removesuffix('total_step') for key in state_dict if key.endswith('.total_step')]
    found = [match[1] for key in state_dict if (match := re.fullmatch(r'(.*norm\d?\.)bn\.weight', key))]
    rep_bns = [norm for norm in found if norm.removesuffix('norm2.') not in mixed]
    of_mixed, of_all = ('|'.join(map(re.escape, norms)) or '(?!)' for norms in (mixed, mixed + rep_bns))
    names: Names = {rf'^({of_mixed})norm[12]\.': r'\1', rf'^({of_all})bn\.': r'\1batch_norm.bn.'}
    converted = rename(state_dict, names, rf'({of_mixed})(warm|total_step)$')
    for norm in mixed:
        converted[f'{norm}step'] = state_dict[f'{norm}total_step'].long() - converted.pop(f'{norm}iter').long()
    for norm in rep_bns:
        weight = state_dict[f'{norm}bn.weight']
        converted.update({f'{norm}weight': torch.ones_like(weight), f'{norm}bias': torch.zeros_like(weight)})
        converted[f'{norm}step'] = torch.tensor(300_000)
    return converted


if __name__ == '__main__':
    write_new(Path(sys.argv[2]), to_bytes(dict(state_dict=dict(from_published_slab(read_state_dict(sys.argv[1]))))))
