"""PVT-mini trained for 6 epochs instead of 3."""

_base_ = './pvt_mini.py'

max_epochs = 6
train_cfg = dict(max_epochs=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
