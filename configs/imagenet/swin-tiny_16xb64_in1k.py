"""Swin-T with LayerNorm on ImageNet-1k by the Swin authors' recipe, as in mmpretrain.

AdamW, 5e-4 for each 512 of the 16 x 64 images, weight decay 0.05 but for norms, biases and bias tables, 300 epochs of a
cosine with 20 of warm-up.
"""

_base_ = [
    '../_base_/models/linear_classifier.py',
    'mmpretrain::_base_/datasets/imagenet_bs64_swin_224.py',
    'mmpretrain::_base_/schedules/imagenet_bs1024_adamw_swin.py',
    'mmpretrain::_base_/default_runtime.py',
]

model = dict(
    backbone=dict(type='tokennorm.Swin', arch='tiny', out_type='avg_featmap', drop_path_rate=0.2),
    head=dict(num_classes=1000, in_channels=768, cal_acc=False),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
optim_wrapper = dict(
    clip_grad=dict(max_norm=5.0),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, relative_position_bias_table=dict(decay_mult=0.0))),
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=3))
