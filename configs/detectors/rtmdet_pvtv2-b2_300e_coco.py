"""RTMDet on PVTv2-B2 with LayerNorm, initialized from the PVT authors' ImageNet weights.

Rate and end of the cosine are those of mmdet's RTMDet on Swin. Images of a batch are padded by the data preprocessor,
which notes their sizes for DTN, not by the test pipeline.
"""

_base_ = 'mmdet::rtmdet/rtmdet_s_8xb32-300e_coco.py'

model = dict(
    data_preprocessor=dict(
        type='tokennorm.DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
    ),
    backbone=dict(
        _delete_=True,
        type='tokennorm.PVTv2',
        arch='b2',
        out_indices=(1, 2, 3),
        init_cfg=dict(
            type='Pretrained', checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_v2_b2.pth'
        ),
    ),
    neck=dict(in_channels=[128, 320, 512]),
)
test_pipeline = [step for step in _base_.test_pipeline if step['type'] != 'Pad']
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
optim_wrapper = dict(
    constructor='tokennorm.LayerDecayOptimWrapperConstructor',
    optimizer=dict(lr=0.001),
    paramwise_cfg=dict(decay_rate=1.0),
)
param_scheduler = _base_.param_scheduler
param_scheduler[1].eta_min = 5e-5
auto_scale_lr = dict(base_batch_size=256)
