"""ListOps in minutes on one core: expressions of 20 to 100 tokens and depth 4, width 64, 4 heads, 2 blocks.

The data comes from `python projects/experiments/listops/make_data.py data/listops_reduced --train 20000 --val 1000
--test 1000 --max-depth 4 --min-length 20 --max-length 100`.
"""

_base_ = './listops_1xb32_lra.py'

data_root = 'data/listops_reduced'
max_iters = 500

model = dict(max_length=100, embed_dims=64, depth=2, num_heads=4, dropout=0.0, positions='learned')
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = dict(dataset=dict(data_root=data_root))
train_cfg = dict(max_iters=max_iters, val_interval=250)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=50, end=max_iters),
]
default_hooks = dict(logger=dict(interval=50), checkpoint=dict(interval=250))
