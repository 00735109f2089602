"""12 epochs with AdamW, learning rate and weight decay 1e-4 for 8 x 2 images, as in the PVT and PVTv2 papers.

Unlike in the papers, norms, lambda and position embeddings are not decayed. The authors' current Mask R-CNN configs
have a learning rate of 2e-4.
"""

_base_ = 'mmdet::_base_/schedules/schedule_1x.py'

optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-4, weight_decay=1e-4),
    paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(pos_embed=dict(decay_mult=0.0))),
)
