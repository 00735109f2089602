"""big_vision's recipe for ViT on ImageNet-1k: its `configs/vit_i1k.py` ("AugReg", arXiv 2106.10270), 4096 images.

The config of a size sets the level of RandAugment and the mixup. There is no CutMix, random erasing, label smoothing or
drop path.

- Weight decay, of weight matrices only: big_vision subtracts 1e-4 x schedule x weight. torch's AdamW multiplies by the
  rate of 1e-3 as well, so it has 0.1 here.
- Warm-up: 32 epochs are 10,016 of 93,900 steps. big_vision has 10,000, and leaves out 1% of the training images.
- Loss: a sigmoid for each class, summed over the classes. The last layer is initialized to 0 and its bias to -6.9.
- RandAugment: big_vision's operations and strengths, always applied. Level 15 goes beyond the usual 10. Level 0 changes
  images too: it posterizes to 0 bits, solarizes at 0, and enhances by a factor of 0.1.
- The backbone is initialized as DeiT, unlike big_vision's.
"""

_base_ = ['mmpretrain::_base_/datasets/imagenet_bs64_swin_224.py', 'mmpretrain::_base_/default_runtime.py']

max_epochs = 300

model = dict(
    type='ImageClassifier',
    backbone=dict(type='tokennorm.ViT', out_type='cls_token', drop_path_rate=0.0),
    head=dict(
        type='VisionTransformerClsHead',  # with a layer and a tanh before the last one
        num_classes=1000,
        cal_acc=False,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.0, num_classes=1000, use_sigmoid=True),
        init_cfg=dict(type='Constant', layer='Linear', val=0, bias=-6.9),
    ),
)
data_preprocessor = dict(mean=[127.5] * 3, std=[127.5] * 3)
moved = dict(magnitude_range=(0, 0.3), interpolation='nearest', prob=1.0)
factor = dict(magnitude_range=(-0.9, 0.9), random_negative_prob=0.0, prob=1.0)  # 0.1 + 0.18 x level
policies = [
    dict(type='AutoContrast', prob=1.0),
    dict(type='Equalize', prob=1.0),
    dict(type='Invert', prob=1.0),
    dict(type='Rotate', magnitude_range=(0, 30), interpolation='nearest', prob=1.0),
    dict(type='Posterize', magnitude_range=(0, 4), prob=1.0),
    dict(type='Solarize', magnitude_range=(0, 256), prob=1.0),
    dict(type='SolarizeAdd', magnitude_range=(0, 110), prob=1.0),
    dict(type='ColorTransform', **factor),
    dict(type='Contrast', **factor),
    dict(type='Brightness', **factor),
    dict(type='Sharpness', **factor),
    dict(type='Shear', direction='horizontal', **moved),
    dict(type='Shear', direction='vertical', **moved),
    dict(type='Translate', direction='horizontal', **moved | dict(magnitude_range=(0, 100 / 224))),
    dict(type='Translate', direction='vertical', **moved | dict(magnitude_range=(0, 100 / 224))),
    dict(type='Cutout', magnitude_range=(0, 80), prob=1.0),
]
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=224, crop_ratio_range=(0.05, 1.0), interpolation='bilinear'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='RandAugment', policies=policies, num_policies=2, total_level=10, magnitude_level=15),
    dict(type='PackInputs'),
]
train_dataloader = dict(batch_size=128, dataset=dict(pipeline=train_pipeline))
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.1),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        custom_keys=dict(pos_embed=dict(decay_mult=0.0), cls_token=dict(decay_mult=0.0)),
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-4, by_epoch=True, end=32, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=True, begin=32, end=max_epochs, convert_to_iter_based=True),
]
train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=1)
val_cfg = dict()
test_cfg = dict()
auto_scale_lr = dict(base_batch_size=4096)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=3))
