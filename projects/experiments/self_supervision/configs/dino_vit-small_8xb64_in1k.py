"""DINO on ImageNet-1k for 100 epochs with ViT-S*, 9 heads of 48 channels (DTN paper, Table 7a).

For DTN: --cfg-options model.backbone.token_norm_cfg.type=DTN model.backbone.l_dtn=10. The values are the defaults of
DINO's published code, for 8 GPUs of 64 images: 8 local crops, and a rate of 0.0005 * 512 / 256. Only the clipping of
gradients differs: DINO's code clips the norm of each parameter, `clip_grad` the norm of all.
"""

_base_ = 'mmpretrain::_base_/default_runtime.py'

custom_imports = dict(imports=['experiments.self_supervision.dino', 'experiments.self_supervision.images'])

data_root = 'data/imagenet'
max_epochs = 100
warmup_epochs = 10

model = dict(
    type='tokennorm.DINO',
    backbone=dict(
        type='tokennorm.ViT',
        arch='small*',
        l_dtn=0,
        out_type='cls_token',
        drop_path_rate=0.1,
    ),
)

train_dataloader = dict(
    batch_size=64,
    num_workers=10,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    dataset=dict(
        type='tokennorm.Crops',
        data_root=data_root,
        folder='train',
        crops=dict(
            global_crop_size=224,
            local_crop_size=96,
            n_local_views=8,
            global_crop_scale=(0.4, 1.0),
            local_crop_scale=(0.05, 0.4),
        ),
    ),
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
)
evaluation = dict(
    bank=dict(type='tokennorm.Crops', data_root=data_root, folder='train', size=224),
    queries=dict(type='tokennorm.Crops', data_root=data_root, folder='val', size=224),
    batch_size=256,
    k=20,
    temperature=0.07,
)
train_cfg = dict(by_epoch=True, max_epochs=max_epochs)
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.04),
    paramwise_cfg=dict(norm_decay_mult=0.0, bias_decay_mult=0.0, custom_keys={'norm': dict(decay_mult=0.0)}),
    clip_grad=dict(max_norm=3.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=True, begin=0, end=warmup_epochs, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-6,
        by_epoch=True,
        begin=warmup_epochs,
        end=max_epochs,
        convert_to_iter_based=True,
    ),
    # The weight decay grows tenfold, to 0.4; where it is 0 it stays 0.
    dict(
        type='CosineAnnealingParamScheduler',
        param_name='weight_decay',
        eta_min_ratio=10.0,
        by_epoch=True,
        begin=0,
        end=max_epochs,
        convert_to_iter_based=True,
    ),
]
default_hooks = dict(checkpoint=dict(interval=20, max_keep_ckpts=-1))
randomness = dict(seed=0)
