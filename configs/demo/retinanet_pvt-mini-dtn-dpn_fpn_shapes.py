"""RetinaNet on a reduced PVT with Dynamic Token Normalization and Dual PatchNorm: the demo."""

_base_ = './retinanet_pvt-mini_fpn_shapes.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(_delete_=True, type='DTN'),
        stem_cfg=dict(_delete_=True, type='DualPatchEmbed'),
    )
)
work_dir = 'work_dirs/demo'
