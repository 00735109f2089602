"""PVT-mini with three times the learning rate: whether an arm was judged at a bad one."""

_base_ = './pvt_mini.py'

optim_wrapper = dict(optimizer=dict(lr=1.5e-3))
