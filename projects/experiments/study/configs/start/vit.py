"""ViT, 100 classes of Tiny ImageNet: 24,000 / 5,000 images, 2 epochs of batches of 32 (1,500 steps)."""

_base_ = '../real/vit.py'

data_root = 'data/tiny_imagenet100'
num_classes = 100
max_epochs = 2

data_preprocessor = dict(num_classes=num_classes)
model = dict(head=dict(num_classes=num_classes))
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=max_epochs, val_interval=1)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
