"""ViT-B with LayerNorm on ImageNet-21k: the baseline of Dual PatchNorm there, with the same recipe."""

_base_ = [
    '../_base_/models/linear_classifier.py',
    'mmpretrain::_base_/datasets/imagenet21k_bs128.py',
    'mmpretrain::_base_/schedules/imagenet_bs1024_adamw_swin.py',
    'mmpretrain::_base_/default_runtime.py',
]

max_epochs = 90

model = dict(
    backbone=dict(type='tokennorm.ViT', arch='base', out_type='cls_token'),
    head=dict(num_classes=21842, in_channels=768, cal_acc=False),
)
train_cfg = dict(_delete_=True, by_epoch=True, max_epochs=max_epochs)
val_cfg = None  # ImageNet-21k has no validation set
test_cfg = None
optim_wrapper = dict(
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, pos_embed=dict(decay_mult=0.0), cls_token=dict(decay_mult=0.0)))
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=max_epochs),
]
