"""PVT-Tiny with LayerNorm on ImageNet-1k by the PVT authors' recipe: DeiT's, with repeated augmentation.

AdamW, 5e-4 for each 512 of the 8 x 128 images, weight decay 0.05 but for norms and biases, 300 epochs of a cosine with
5 of warm-up. Unlike in their recipe, positions are not decayed either.
"""

_base_ = [
    '../_base_/models/linear_classifier.py',
    'mmpretrain::_base_/datasets/imagenet_bs64_swin_224.py',
    'mmpretrain::_base_/schedules/imagenet_bs1024_adamw_swin.py',
    'mmpretrain::_base_/default_runtime.py',
]

model = dict(
    backbone=dict(type='tokennorm.PVT', arch='tiny', out_type='cls_token'),
    head=dict(num_classes=1000, in_channels=512, cal_acc=False),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
train_dataloader = dict(batch_size=128, sampler=dict(type='RepeatAugSampler', shuffle=True))
optim_wrapper = dict(
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, pos_embed=dict(decay_mult=0.0), cls_token=dict(decay_mult=0.0)))
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=300),
]
default_hooks = dict(checkpoint=dict(max_keep_ckpts=3))
