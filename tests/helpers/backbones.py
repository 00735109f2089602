"""Small backbones of all four architectures."""

from tokennorm.backbones import PVT, PVTv2, Swin

ARCH = dict(embed_dims=[8, 16, 24], depths=[2, 2, 1], num_heads=[1, 2, 4], mlp_ratios=[2, 2, 1])

SR_RATIOS = dict(sr_ratios=[4, 2, 1])

BACKBONES = {
    PVT: dict(arch=ARCH | SR_RATIOS, pretrain_img_size=64),
    PVTv2: dict(arch=ARCH | SR_RATIOS),
    Swin: dict(arch=ARCH, window_size=4),
}


def build(cls, **kwargs):
    return cls(**{**BACKBONES[cls], 'drop_path_rate': 0.0, **kwargs})
