"""SSDlite on MobileNetV2, which fine-tunes mmdet's COCO weights on `--data DIR`; without it, it trains on COCO.

Its last feature map is one position, of which BatchNorm needs more than one image: an incomplete batch is left out.
"""

_base_ = 'mmdet::ssd/ssdlite_mobilenetv2-scratch_8xb24-600e_coco.py'

max_epochs = 12
train_dataloader = dict(batch_size=8, num_workers=2, drop_last=True, dataset=dict(times=1))
train_cfg = dict(max_epochs=max_epochs, val_interval=1)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)
