"""The detector of the demo with Dynamic Token Normalization and Dual PatchNorm, on micrographs of blood cells."""

_base_ = './retinanet_pvt-mini_fpn_bccd.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(_delete_=True, type='DTN'),
        stem_cfg=dict(_delete_=True, type='DualPatchEmbed'),
    )
)
work_dir = 'work_dirs/bccd'
