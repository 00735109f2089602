"""DINO at a small size, to try the commands: a ViT of 3 blocks and 64 channels on 32 x 32 pixels.

The grids have 4 x 4 and 2 x 2 tokens.

The class token joins before the last block with LN too, as DTN needs it: the arms differ in the norms only. For DTN:
--cfg-options model.backbone.token_norm_cfg.type=DTN.
"""

_base_ = './dino_vit-small_8xb64_in1k.py'

data_root = 'data/tiny_imagenet100'
max_iters = 400

model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=64, depths=3, num_heads=4, mlp_ratios=4),
        patch_size=8,
        l_dtn=2,
        pretrain_img_size=32,
        drop_path_rate=0.0,
    ),
    out_dims=512,
    hidden_dims=256,
    bottleneck_dims=128,
    freeze_last_layer=0,
    momentum=0.99,
)
train_dataloader = dict(
    batch_size=128,
    num_workers=0,
    persistent_workers=False,
    pin_memory=False,
    dataset=dict(
        data_root=data_root,
        crops=dict(
            global_crop_size=32, local_crop_size=16, n_local_views=2, local_crop_scale=(0.1, 0.4), cj_strength=0.25
        ),
    ),
    sampler=dict(_delete_=True, type='InfiniteSampler', shuffle=True),
)
evaluation = dict(bank=dict(data_root=data_root, size=32), queries=dict(data_root=data_root, size=32))
train_cfg = dict(_delete_=True, type='IterBasedTrainLoop', max_iters=max_iters)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=100),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=100, end=max_iters),
]
default_hooks = dict(logger=dict(interval=25), checkpoint=dict(by_epoch=False, interval=100))
