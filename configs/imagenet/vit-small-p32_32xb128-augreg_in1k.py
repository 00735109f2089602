"""ViT-S/32 with LayerNorm on ImageNet-1k by big_vision's recipe: the baseline of Dual PatchNorm."""

_base_ = '../_base_/schedules/augreg.py'

train_pipeline = _base_.train_pipeline
train_pipeline[3].magnitude_level = 15  # RandAugment

model = dict(
    backbone=dict(arch='small', patch_size=32),
    head=dict(in_channels=384, hidden_dim=384),
    train_cfg=dict(augments=dict(type='Mixup', alpha=0.2)),
)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
