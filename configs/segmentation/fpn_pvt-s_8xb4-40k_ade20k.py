"""Semantic FPN on PVT-Small with LayerNorm for ADE20K by the PVT authors' recipe, initialized from their weights.

AdamW, 2e-4 for 8 x 4 images, weight decay 1e-4, 40,000 iterations of a polynomial schedule. Unlike in theirs, norms and
position embeddings are not decayed. It needs mmsegmentation: `pip install onedl-mmsegmentation==1.4.2`.
"""

_base_ = [
    'mmseg::_base_/models/fpn_r50.py',
    'mmseg::_base_/datasets/ade20k.py',
    'mmseg::_base_/default_runtime.py',
    'mmseg::_base_/schedules/schedule_40k.py',
]

model = dict(
    data_preprocessor=dict(size=(512, 512)),
    pretrained=None,
    backbone=dict(
        _delete_=True,
        type='tokennorm.PVT',
        arch='small',
        init_cfg=dict(
            type='Pretrained', checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_small.pth'
        ),
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
    decode_head=dict(num_classes=150),
)
optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='AdamW', lr=2e-4, weight_decay=1e-4),
    paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(pos_embed=dict(decay_mult=0.0))),
)
param_scheduler = [dict(type='PolyLR', power=0.9, eta_min=0.0, begin=0, end=40000, by_epoch=False)]
