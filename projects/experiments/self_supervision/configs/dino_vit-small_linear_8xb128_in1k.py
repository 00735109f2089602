"""A linear classifier on the frozen features of DINO, trained for 100 epochs (DTN paper, Table 7a).

For DTN: --cfg-options model.backbone.token_norm_cfg.type=DTN model.backbone.l_dtn=10. The values are those of the
linear evaluation in DINO's published code: SGD with 0.001 per 256 images, no weight decay, random crops and flips. It
reads the class token after the last block; DINO's code joins those of the last four blocks of ViT-S.
"""

_base_ = [
    'mmpretrain::_base_/datasets/imagenet_bs32.py',
    'mmpretrain::_base_/default_runtime.py',
]

max_epochs = 100

model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='tokennorm.ViT',
        arch='small*',
        l_dtn=0,
        out_type='cls_token',
        drop_path_rate=0.0,
        frozen_stages=12,  # all blocks, and the norm after them
        init_cfg=dict(type='Pretrained', checkpoint='work_dirs/dino_vit-small_8xb64_in1k/epoch_100.pth'),
    ),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=432,
        loss=dict(type='CrossEntropyLoss'),
        init_cfg=dict(type='Normal', layer='Linear', std=0.01),
    ),
)
train_dataloader = dict(batch_size=128)
train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=10)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.001 * 1024 / 256, momentum=0.9, weight_decay=0.0))
param_scheduler = dict(type='CosineAnnealingLR', T_max=max_epochs, by_epoch=True, begin=0, end=max_epochs)
auto_scale_lr = dict(base_batch_size=1024)
