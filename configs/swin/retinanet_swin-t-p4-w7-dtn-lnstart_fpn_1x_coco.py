"""RetinaNet on Swin-T with DTN, initialized from the weights of the LayerNorm baseline.

This is not the papers' protocol. lambda is initialized so close to 1 that the first forward pass is LayerNorm's, and
its learning rate is ten times that of the other parameters.
"""

_base_ = './retinanet_swin-t-p4-w7_fpn_1x_coco.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN', init='layer_norm', eps=1e-6)))
optim_wrapper = dict(
    paramwise_cfg=dict(
        custom_keys=dict(mean_logit=dict(lr_mult=10.0, decay_mult=0.0), var_logit=dict(lr_mult=10.0, decay_mult=0.0))
    )
)
