"""A study's pretraining: AdamW by epochs; its length, warm-up and cosine are the config's."""

_base_ = 'mmpretrain::_base_/default_runtime.py'

train_cfg = dict(by_epoch=True)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05, fused=True),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        custom_keys=dict(pos_embed=dict(decay_mult=0.0), cls_token=dict(decay_mult=0.0)),
    ),
    clip_grad=dict(max_norm=10.0),
)
default_hooks = dict(logger=dict(interval=25))
