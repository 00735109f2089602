"""PVT-mini on 94,998 training images of Tiny ImageNet, scored on 5,000 held-out ones: for learning rates."""

_base_ = '../evidence/pvt_mini.py'

data_root = 'data/study_tiny_imagenet_held_out'

train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
