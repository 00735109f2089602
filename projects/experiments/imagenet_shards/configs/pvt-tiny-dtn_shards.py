"""PVT-Tiny with Dynamic Token Normalization on ImageNet-1k in shards, written by write_shards.py of this experiment."""

_base_ = 'tokennorm::imagenet/pvt-tiny-dtn_8xb128_in1k.py'

custom_imports = dict(imports=['experiments.imagenet_shards.dataset'])

train_dataloader = dict(dataset=dict(type='tokennorm.ShardDataset', data_root='data/imagenet_shards'))
val_dataloader = dict(dataset=dict(type='tokennorm.ShardDataset', data_root='data/imagenet_shards'))
test_dataloader = val_dataloader
