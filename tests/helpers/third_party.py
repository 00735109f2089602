"""Models of timm, mmdet and mmpretrain."""

import mmdet.models.backbones as mmdet_backbones
import mmpretrain.models.backbones as mmpretrain_backbones
import timm
from torch import nn


def vit(**kwargs):
    return timm.models.VisionTransformer(
        **{**dict(img_size=(32, 48), patch_size=8, embed_dim=16, depth=2, num_heads=4, num_classes=5), **kwargs}
    )


def timm_swin(**kwargs):
    arch = dict(img_size=(64, 96), embed_dim=16, depths=(2, 2), num_heads=(2, 4), window_size=4)
    return timm.create_model('swin_tiny_patch4_window7_224', **arch, **kwargs)


def edgenext():
    return timm.create_model('edgenext_xx_small', depths=(1,) * 4, dims=(16, 16, 32, 32), ls_init_value=1.0)


def maxvit():
    widths = dict(img_size=128, embed_dim=(32, 32, 64, 64), depths=(1,) * 4, stem_width=(8, 16))
    return timm.create_model('maxvit_pico_rw_256', **widths)


def mmdet_pvt():
    arch = dict(num_stages=2, num_layers=(1, 1), num_heads=(1, 2), sr_ratios=(2, 1), mlp_ratios=(2, 2))
    patches = dict(patch_sizes=(4, 2), strides=(4, 2), paddings=(0, 0))
    return mmdet_backbones.PyramidVisionTransformer(
        pretrain_img_size=32, embed_dims=16, out_indices=(0, 1), **arch, **patches
    )


def mmdet_pvt_v2():
    return mmdet_backbones.PyramidVisionTransformerV2(
        embed_dims=16, num_layers=(1,) * 4, num_heads=(1,) * 4, mlp_ratios=(2,) * 4
    )


def mmdet_swin():
    return mmdet_backbones.SwinTransformer(
        embed_dims=16, depths=(2, 2), num_heads=(2, 4), strides=(4, 2), window_size=4, out_indices=(0, 1)
    )


def mmpretrain_swin():
    arch = dict(embed_dims=16, depths=(2, 2), num_heads=(2, 4))
    return mmpretrain_backbones.SwinTransformer(arch, img_size=64, window_size=4, out_indices=(0, 1))


def t2t():
    return mmpretrain_backbones.T2T_ViT(
        img_size=32,
        embed_dims=16,
        num_layers=2,
        t2t_cfg=dict(token_dims=8, use_performer=False),
        layer_cfgs=dict(num_heads=4, feedforward_channels=32),
    )


MODELS = {
    # name: model, image, norms in its blocks, heads of the first and last
    'vit': (vit, (32, 48), 4, (4, 4)),
    'vit, any size': (lambda: vit(dynamic_img_size=True, dynamic_img_pad=True), (37, 90), 4, (4, 4)),
    'deit': (
        lambda: timm.create_model('deit_tiny_distilled_patch16_224', img_size=(32, 80), depth=2),
        (32, 80),
        4,
        (3, 3),
    ),
    'swin': (timm_swin, (64, 96), 8, (2, 4)),
    'pvt_v2': (lambda: timm.create_model('pvt_v2_b0', depths=(1,) * 4), (66, 100), 8, (1, 8)),
    'convit': (
        lambda: timm.create_model('convit_tiny', img_size=32, embed_dim=16, depth=3, local_up_to_layer=2),
        (32, 32),
        6,
        (4, 4),
    ),
    'tnt': (lambda: timm.create_model('tnt_s_patch16_224', img_size=32, depth=2), (32, 32), 8, (4, 6)),
    'edgenext, attention named xca': (edgenext, (66, 100), 6, (4, 4)),
    'maxvit, block named attn_block': (maxvit, (128, 128), 16, (1, 2)),
    'mmdet pvt': (mmdet_pvt, (30, 50), 4, (1, 2)),
    'mmdet pvt_v2': (mmdet_pvt_v2, (70, 100), 8, (1, 1)),
    'mmdet swin': (mmdet_swin, (45, 70), 8, (2, 4)),
    'mmpretrain swin': (mmpretrain_swin, (45, 70), 8, (2, 4)),
    't2t': (t2t, (32, 64), 4, (4, 4)),
}


def with_random_norms(model):
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, 1, 0.3)
            nn.init.normal_(module.bias, 0, 0.3)
    model.eval()  # OpenMMLab's return nothing
    return model


def maps(out):
    return out if isinstance(out, tuple | list) else (out,)
