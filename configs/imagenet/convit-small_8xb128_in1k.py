"""ConViT-S of timm with LayerNorm on ImageNet-1k by DeiT's recipe, which is that of PVT-Tiny here.

projects/experiments/ablations/README.md has the options for DTN, and for LeViT, TNT, ViTamin and ConvNeXt instead.
"""

_base_ = './pvt-tiny_8xb128_in1k.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='tokennorm.ReplacedNorms',
        model=dict(type='timm.create_model', model_name='convit_small', num_classes=1000, drop_path_rate=0.1),
        norm_args=dict(),
    ),
    head=dict(
        _delete_=True,
        type='ClsHead',  # the model has a classifier
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
    ),
)
