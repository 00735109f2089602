"""RetinaNet on PVT-Tiny with DTN, from the weights of the LayerNorm baseline, which is not the paper's protocol.

lambda starts so close to 1 that the first step is LayerNorm's, and moves with ten times the learning rate.
"""

_base_ = './retinanet_pvt-t_fpn_1x_coco.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN', start='layer_norm', eps=1e-6)))
optim_wrapper = dict(
    paramwise_cfg=dict(
        custom_keys=dict(mean_logit=dict(lr_mult=10.0, decay_mult=0.0), var_logit=dict(lr_mult=10.0, decay_mult=0.0))
    )
)
