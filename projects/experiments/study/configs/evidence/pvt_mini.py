"""PVT-mini on the whole of Tiny ImageNet: 200 classes, 99,998 / 10,000 images, batches of 128."""

_base_ = '../real/pvt_mini.py'

data_root = 'data/tiny_imagenet200'
num_classes = 200

data_preprocessor = dict(num_classes=num_classes)
model = dict(head=dict(num_classes=num_classes))
train_dataloader = dict(batch_size=128, dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
train_cfg = dict(val_interval=1)
