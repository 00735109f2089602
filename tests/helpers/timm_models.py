"""Arguments of timm models."""

VIT_ARGS = dict(embed_dim=16, depth=3, num_heads=4, dynamic_img_size=True, dynamic_img_pad=True)

SWIN_ARGS = dict(embed_dim=16, depths=(2, 2), num_heads=(2, 4), strict_img_size=False)

CASES = {
    # name in timm: arguments, image, (channels, stride, side) of each map
    'pvt_v2_b0': (dict(timm_args=dict(depths=(1,) * 4)), (66, 100), [(32, 4), (64, 8), (160, 16), (256, 32)]),
    'vit_tiny_patch16_224': (dict(out_indices=(0, 1), timm_args=VIT_ARGS), (66, 100), [(16, 16), (16, 16)]),
    'swin_tiny_patch4_window7_224': (dict(out_indices=(0, 1), timm_args=SWIN_ARGS), (68, 100), [(16, 4), (32, 8)]),
}
