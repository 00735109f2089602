"""Small PVTs, and their published layout."""

import torch

from tokennorm.backbones import PVT

ARCH = dict(
    embed_dims=[8, 16, 40, 64],
    depths=[2, 1, 1, 1],
    num_heads=[1, 2, 5, 8],
    mlp_ratios=[4, 4, 2, 2],
    sr_ratios=[8, 4, 2, 1],
)


def small_pvt(**kwargs):
    return PVT(**{**dict(arch=ARCH, pretrain_img_size=224, drop_path_rate=0.0), **kwargs})


def published_layout(model):
    """The model's state dict under the PVT authors' names, with what a classifier has beside it."""
    renamed = {}
    for key, value in model.state_dict().items():
        _, stage, kind, *rest = key.split('.')
        kind = 'block' if kind == 'blocks' else kind
        renamed['.'.join([f'{kind}{int(stage) + 1}', *rest])] = value
    renamed['pos_embed4'] = torch.cat([torch.randn(1, 1, 64), renamed['pos_embed4']], dim=1)
    extra = {
        'cls_token': (1, 1, 64),
        'norm.weight': (64,),
        'norm.bias': (64,),
        'head.weight': (10, 64),
        'head.bias': (10,),
    }
    return renamed | {key: torch.randn(shape) for key, shape in extra.items()}
