"""RetinaNet on PVT-mini, blood cells at 320 x 240 pixels, 24 epochs."""

_base_ = '../real/retinanet_bccd.py'

custom_imports = dict(imports=['experiments.study.local_norm'])
max_epochs = 24
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
