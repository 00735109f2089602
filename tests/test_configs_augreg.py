"""The recipe of big_vision for Dual PatchNorm: what its numbers become here, and one training step."""

import math

import numpy as np
import pytest
import torch
from mmengine import DefaultScope
from mmengine.optim import build_optim_wrapper
from mmengine.registry import TRANSFORMS
from mmpretrain.structures import DataSample

from tests.helpers.configs import ROOT, build_model, flatten, judged_model, resolve

# big_vision's settings of the sizes: level of RandAugment, and alpha of mixup.
SIZES = {'tiny': (0, None), 'small-p32': (15, 0.2), 'small': (15, 0.5), 'base-p32': (15, 0.5), 'base': (15, 0.5)}
STEPS = math.ceil(1_281_167 / 4096)  # per epoch


def config_of(size, variant=''):
    return resolve(ROOT / f'imagenet/vit-{size}{variant}_32xb128-augreg_in1k.py')


@pytest.mark.parametrize(('size', 'level', 'alpha'), [(size, *values) for size, values in SIZES.items()])
def test_augmentation_of_each_size_is_that_of_big_vision(size, level, alpha):
    for variant in ('', '-dpn'):
        cfg = config_of(size, variant)
        (augment,) = (step for step in cfg.train_dataloader.dataset.pipeline if step.type == 'RandAugment')
        assert (augment.num_policies, augment.magnitude_level, augment.total_level) == (2, level, 10)
        assert len(augment.policies) == 16
        mixup = cfg.model.train_cfg
        assert (mixup and (mixup.augments.type, mixup.augments.alpha)) == (alpha and ('Mixup', alpha))
        assert cfg.train_dataloader.batch_size * 32 == 4096
        assert not {key for key in flatten(cfg.to_dict()) if 'CutMix' in key or 'RandomErasing' in key}


@pytest.mark.parametrize('level', [0, 10, 15])
def test_enhancing_and_posterizing_have_big_vision_s_strength(level):
    """Factors are 0.1 + 1.8 level / 10, bits are 4 level / 10, the threshold of solarizing 256 level / 10."""
    cfg = config_of('tiny').train_dataloader.dataset.pipeline[3]
    steps = {policy.type: dict(policy) for policy in cfg.policies}
    levels = dict(magnitude_level=level, total_level=10)
    image = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        bright, few, sun = (
            TRANSFORMS.build(steps[name] | levels)(dict(img=image.copy()))['img'].astype(int)
            for name in ('Brightness', 'Posterize', 'Solarize')
        )
    assert abs(bright - np.clip(image * (0.1 + 0.18 * level), 0, 255)).max() <= 1
    shift = 8 - int(0.4 * level)
    assert (few == image.astype(int) >> shift << shift).all()
    assert (sun == np.where(image < 25.6 * level, image, 255 - image.astype(int))).all()


def test_rates_and_decay_of_a_step_are_those_of_big_vision():
    """It subtracts 1e-4 x schedule x weight from weight matrices, which AdamW multiplies by the rate."""
    cfg = config_of('tiny', '-dpn')
    with torch.device('meta'):
        model = judged_model(cfg)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    decays = {id(p): group['weight_decay'] * group['lr'] for group in optimizer.param_groups for p in group['params']}
    for name, p in model.named_parameters():
        kernel = name.endswith('.weight') and 'norm' not in name
        assert decays[id(p)] == pytest.approx(1e-4 if kernel else 0), name
    warm_up, cosine = cfg.param_scheduler
    assert abs(warm_up.end * STEPS - 10_000) < 20
    assert (cosine.begin, cosine.end, cosine.eta_min) == (warm_up.end, 300, 0)
    assert cfg.optim_wrapper.clip_grad.max_norm == 1


@pytest.mark.parametrize('size', ['tiny', 'small-p32'])
def test_one_step_begins_with_the_loss_of_the_last_bias(size):
    """At first all logits are -6.9, and the loss is the sum of a sigmoid's loss for each class."""
    cfg = config_of(size, '-dpn').copy()
    arch = dict(embed_dims=48, depths=2, num_heads=2, mlp_ratios=2)
    cfg.model.backbone.arch = arch
    cfg.model.head.update(in_channels=48, hidden_dim=48)
    cfg.model.data_preprocessor = cfg.data_preprocessor
    model = build_model(cfg).train()
    model.init_weights()
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    images = [torch.randint(0, 256, (3, 224, 224), dtype=torch.uint8)] * 2
    data = dict(inputs=images, data_samples=[DataSample().set_gt_label(label) for label in (3, 700)])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    log = model.train_step(data, optim_wrapper)
    softplus = math.log1p(math.exp(-6.9))
    assert log['loss'].item() == pytest.approx(1000 * softplus + 6.9, rel=1e-4)
    assert not torch.equal(model.head.layers.head.weight, before['head.layers.head.weight'])
