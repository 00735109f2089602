"""ViT-B/32 with LayerNorm on ImageNet-1k by big_vision's recipe: the baseline of Dual PatchNorm."""

_base_ = '../_base_/schedules/augreg.py'

train_pipeline = _base_.train_pipeline
train_pipeline[3].magnitude_level = 15  # RandAugment

model = dict(
    backbone=dict(arch='base', patch_size=32),
    head=dict(in_channels=768, hidden_dim=768),
    train_cfg=dict(augments=dict(type='Mixup', alpha=0.5)),
)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
