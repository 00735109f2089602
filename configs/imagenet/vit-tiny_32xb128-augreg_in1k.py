"""ViT-T (Ti/16) with LayerNorm on ImageNet-1k by big_vision's recipe: the baseline of Dual PatchNorm."""

_base_ = '../_base_/schedules/augreg.py'

train_pipeline = _base_.train_pipeline
train_pipeline[3].magnitude_level = 0  # RandAugment

model = dict(
    backbone=dict(arch='tiny'),
    head=dict(in_channels=192, hidden_dim=192),
    train_cfg=None,
)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
