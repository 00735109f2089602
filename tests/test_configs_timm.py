"""Configs on timm's backbones: they build with fitting neck and anchors, take a step with loss, and decay by depth."""

from copy import deepcopy

import pytest
import torch
from mmengine import DefaultScope
from mmengine.optim import build_optim_wrapper

from tests.helpers.cases import fast_first, slow
from tests.helpers.configs import ROOT, build_model, judged_model, resolve
from tests.helpers.samples import sample_with_two_objects
from tokennorm.config.open_config import use_options
from tokennorm.norms import DTN

EIGHT_GPUS = {
    'retinanet_dinov3-vit-s_sfp_1x_coco': (16, 0.7, 12 + 1),
    'mask-rcnn_dinov3-vit-b_sfp_1x_coco': (16, 0.7, 12 + 1),
    'retinanet_convnext-t_fpn_1x_coco': (32, 0.98, 18 + 1),
}
SMALL = {
    'vit_small_patch16_dinov3': dict(embed_dim=384, depth=2, num_heads=4, mlp_ratio=1.0),
    'vit_base_patch16_dinov3': dict(embed_dim=768, depth=2, num_heads=4, mlp_ratio=1.0),
    'convnext_tiny': dict(depths=(1, 1, 1, 1)),
}
DTN_OPTIONS = {  # of `--cfg-options`, as in docs/guides/timm.md
    'model.backbone.token_norm_cfg.type': 'DTN',
    'model.backbone.token_norm_cfg.init': 'layer_norm',
}


def config(name):
    return resolve(ROOT / 'timm' / f'{name}.py')


@pytest.mark.parametrize(
    'name', fast_first(EIGHT_GPUS, 'retinanet_convnext-t_fpn_1x_coco', 'retinanet_dinov3-vit-s_sfp_1x_coco')
)
def test_builds_and_its_learning_rate_decays_with_depth(name):
    stride, decay, depth = EIGHT_GPUS[name]
    cfg = config(name)
    with torch.device('meta'):
        model = judged_model(cfg, 'unfit-size')  # the channels of the neck, and the strides of the anchors, fit
    assert model.backbone.feature_info[-1]['reduction'] == stride
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    rates = {names[id(group['params'][0])]: group['lr'] / 1e-4 for group in groups}
    assert max(rates.values()) == 1
    assert min(rates.values()) == pytest.approx(decay**depth)
    decayed = {names[id(g['params'][0])] for g in groups if g['weight_decay'] > 0}
    assert not any('gamma' in name or 'norm' in name or name.endswith(('bias', '_token')) for name in decayed)
    assert any(name.endswith('fc1.weight') for name in decayed)


@pytest.mark.parametrize('name', EIGHT_GPUS)
def test_on_one_gpu_a_step_has_as_many_images_as_on_eight(name):
    one, eight = config(name.replace('_1x_', '_1xb2-accum8-1x_')), config(name)
    assert one.train_dataloader.batch_size * one.optim_wrapper.accumulative_counts == 16
    assert one.param_scheduler[0].end == 8 * eight.param_scheduler[0].end
    assert one.auto_scale_lr.base_batch_size == 2
    assert one.model.backbone.pop('with_cp') is True
    assert one.model == eight.model


def small(cfg):
    """The config with a shallow backbone of the same channels, without weights."""
    backbone = cfg.model.backbone
    backbone.timm_args.update(SMALL[backbone.model_name])
    backbone.init_cfg = None
    if cfg.model.type == 'MaskRCNN':  # each RoI costs more than the backbone
        cfg.model.train_cfg.rpn_proposal.max_per_img = 32
        cfg.model.train_cfg.rcnn.sampler.num = 16
    return cfg


def check_a_step(cfg):
    """All losses and all gradients of the backbone exist, and are finite."""
    model = build_model(cfg).train()
    samples = [sample_with_two_objects() for _ in range(2)]
    samples[1].set_metainfo(dict(img_shape=(90, 122)))
    images = [torch.randint(0, 255, (3, *sample.img_shape), dtype=torch.uint8) for sample in samples]
    losses = model(**model.data_preprocessor(dict(inputs=images, data_samples=samples), True), mode='loss')
    loss, shown = model.parse_losses(losses)
    expected = {'loss_cls', 'loss_bbox'} | ({'loss_rpn_cls', 'loss_mask'} if cfg.model.type == 'MaskRCNN' else set())
    assert expected < set(shown)
    assert loss.isfinite()
    loss.backward()
    gradients = {name: p.grad for name, p in model.backbone.named_parameters() if p.requires_grad}
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.isfinite().all()] == []
    return model


@pytest.mark.parametrize('name', fast_first(EIGHT_GPUS, 'retinanet_convnext-t_fpn_1x_coco'))
def test_a_step_has_finite_losses_and_gradients_everywhere(name):
    check_a_step(small(deepcopy(config(name))))


@pytest.mark.parametrize('name', ['retinanet_dinov3-vit-s_sfp_1x_coco', slow('mask-rcnn_dinov3-vit-b_sfp_1x_coco')])
def test_a_step_with_dtn_by_options_on_one_gpu(name):
    cfg = small(deepcopy(config(name.replace('_1x_', '_1xb2-accum8-1x_'))))  # with activation checkpointing
    use_options(cfg, DTN_OPTIONS)
    model = check_a_step(cfg)
    assert sum(isinstance(module, DTN) for module in model.backbone.modules()) == 2 * 2
