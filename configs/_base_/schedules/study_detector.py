"""The schedule of small datasets in a study: it keeps the last checkpoint, not the best one, and reports nothing."""

_base_ = './adamw_cosine.py'

default_hooks = dict(checkpoint=dict(_delete_=True, type='CheckpointHook', interval=1, max_keep_ckpts=1))
custom_hooks = []
