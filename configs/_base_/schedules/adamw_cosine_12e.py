"""adamw_cosine with 12 epochs and a validation after each."""

_base_ = './adamw_cosine.py'

max_epochs = 12
train_cfg = dict(max_epochs=max_epochs, val_interval=1)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
default_hooks = dict(checkpoint=dict(interval=1))
