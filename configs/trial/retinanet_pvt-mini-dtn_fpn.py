"""RetinaNet on PVT-mini with DTN, for photographs, on a CPU; its weights come with this package."""

_base_ = './retinanet_pvt-mini_fpn.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(_delete_=True, type='DTN'),  # with its eps, as in the pretraining
        init_cfg=dict(checkpoint='tokennorm:pvt-mini-dtn'),
    )
)
