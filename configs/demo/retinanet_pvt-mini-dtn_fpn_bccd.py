"""RetinaNet on a reduced PVT with Dynamic Token Normalization, on micrographs of blood cells: for trials on a CPU."""

_base_ = './retinanet_pvt-mini_fpn_bccd.py'

model = dict(backbone=dict(token_norm_cfg=dict(_delete_=True, type='DTN')))
work_dir = 'work_dirs/bccd'
