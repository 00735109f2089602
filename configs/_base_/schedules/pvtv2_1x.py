"""12 epochs with AdamW, learning rate and weight decay 1e-4 for 8 x 2 images, as in the PVTv2 paper.

What is not the paper's: norms and lambda are not decayed. (The authors' configs of Mask R-CNN, not those of RetinaNet,
have a rate of 2e-4.)
"""

_base_ = 'mmdet::_base_/schedules/schedule_1x.py'

optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-4, weight_decay=1e-4),
    paramwise_cfg=dict(norm_decay_mult=0.0),
)
