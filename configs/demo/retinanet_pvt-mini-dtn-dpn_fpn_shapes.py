"""RetinaNet on a reduced PVT with Dynamic Token Normalization and Dual PatchNorm: the demo.

The stem adds the mean and deviation of each patch again, which the first norm of Dual PatchNorm removes: most of an
object's color. projects/experiments/shapes/README.md compares schedules with and without it.
"""

_base_ = './retinanet_pvt-mini_fpn_shapes.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(_delete_=True, type='DTN'),
        stem_cfg=dict(_delete_=True, type='DualPatchEmbed', statistics=True),
    )
)
work_dir = 'work_dirs/demo'
