"""DINO at a small size, to try the commands: a ViT of 3 blocks and 64 channels on 64 x 64 pixels.

The grids have 8 x 8 and 4 x 4 tokens. The settings have not been tuned.

The class token joins before the last block with LN too, as DTN needs it: the arms differ in the norms only. For DTN:
--cfg-options model.backbone.token_norm_cfg.type=DTN.
"""

_base_ = './dino_vit-small_8xb64_in1k.py'

data_root = 'data/tiny_imagenet100'
max_iters = 300

model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=64, depths=3, num_heads=4, mlp_ratios=4),
        token_norm_cfg=dict(type='LN', eps=1e-6),  # with the option DTN has this eps too
        patch_size=8,
        l_dtn=2,
        pretrain_img_size=64,
        drop_path_rate=0.0,
    ),
    out_dims=1024,
    hidden_dims=256,
    bottleneck_dims=256,
    freeze_last_layer=0,
    momentum=0.95,
)
train_dataloader = dict(
    batch_size=64,
    num_workers=0,
    persistent_workers=False,
    pin_memory=False,
    dataset=dict(
        data_root=data_root, crops=dict(global_crop_size=64, local_crop_size=32, n_local_views=2, cj_strength=0.25)
    ),
    sampler=dict(_delete_=True, type='InfiniteSampler', shuffle=True),
)
evaluation = dict(bank=dict(data_root=data_root, size=64), queries=dict(data_root=data_root, size=64))
train_cfg = dict(_delete_=True, type='IterBasedTrainLoop', max_iters=max_iters)
optim_wrapper = dict(optimizer=dict(lr=2e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=30),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=30, end=max_iters),
]
default_hooks = dict(logger=dict(interval=25), checkpoint=dict(by_epoch=False, interval=100))
