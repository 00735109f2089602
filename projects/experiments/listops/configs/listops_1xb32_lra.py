"""Long ListOps at the size of the DTN paper's Table 4: width 512, 8 heads, 6 blocks, 5,000 steps of 32 expressions.

Options: model.encoder=transformer, bigbird or reformer; model.token_norm_cfg.type=LN, BN, IN, GN, ScaleNorm, PowerNorm
or DTN. The optimizer is that of Long Range Arena. The data comes from
`python projects/experiments/listops/make_data.py data/listops`.
"""

_base_ = 'mmpretrain::_base_/default_runtime.py'

custom_imports = dict(imports=['experiments.listops.classifier', 'experiments.listops.dataset'])

data_root = 'data/listops'
max_iters = 5000
warmup = 1000

model = dict(
    type='tokennorm.ListOpsClassifier',
    encoder='transformer',
    token_norm_cfg=dict(type='LN'),
    max_length=1999,
    embed_dims=512,
    depth=6,
    num_heads=8,
    mlp_ratio=4,
    dropout=0.1,
    positions='sinusoidal',
)

collate_fn = dict(type='pseudo_collate')  # the model pads
train_dataloader = dict(
    batch_size=32,
    num_workers=0,
    dataset=dict(type='tokennorm.ListOps', data_root=data_root, file='basic_train.tsv'),
    sampler=dict(type='InfiniteSampler', shuffle=True),
    collate_fn=collate_fn,
)
val_dataloader = dict(
    batch_size=32,
    num_workers=0,
    dataset=dict(type='tokennorm.ListOps', data_root=data_root, file='basic_val.tsv'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=collate_fn,
)
test_dataloader = dict(
    batch_size=32,
    num_workers=0,
    dataset=dict(type='tokennorm.ListOps', data_root=data_root, file='basic_test.tsv'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=collate_fn,
)
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
train_cfg = dict(type='IterBasedTrainLoop', max_iters=max_iters, val_interval=500)
val_cfg = dict()
test_cfg = dict()

# The rate is 0.05 * min(step / 1000, 1) / sqrt(max(step, 1000)): 0.05 / sqrt(1000) = 0.00158 at its peak. After it,
# lines of 250 steps follow the inverse square root to 0.5%.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=0.00158, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1),
    paramwise_cfg=dict(
        custom_keys={name: dict(decay_mult=0.0) for name in ('mean_logit', 'var_logit', 'norm.position')}
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=warmup),
    *(
        dict(type='LinearLR', start_factor=1.0, end_factor=(t / (t + 250)) ** 0.5, by_epoch=False, begin=t, end=t + 250)
        for t in range(warmup, max_iters, 250)
    ),
]
default_hooks = dict(
    logger=dict(interval=50),
    checkpoint=dict(by_epoch=False, interval=500, save_best='accuracy/top1', rule='greater'),
)
randomness = dict(seed=0)
