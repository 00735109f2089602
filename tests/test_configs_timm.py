"""Configs on timm's backbones: they build with fitting neck and anchors, take a step with loss, and decay by depth."""

import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine import DefaultScope
from mmengine.optim import build_optim_wrapper
from mmengine.structures import InstanceData

from tests.helpers.configs import ROOT, build_model, resolve

EIGHT_GPUS = {
    'retinanet_dinov3-vit-s_sfp_1x_coco': (16, 0.7, 12 + 1),
    'mask-rcnn_dinov3-vit-b_sfp_1x_coco': (16, 0.7, 12 + 1),
    'retinanet_convnext-t_fpn_1x_coco': (32, 0.98, 18 + 1),
}
SMALL = dict(
    vit=dict(embed_dim=384, depth=2, num_heads=4, mlp_ratio=1.0),
    convnext=dict(depths=(1, 1, 1, 1)),
)


def config(name):
    return resolve(ROOT / 'timm' / f'{name}.py')


@pytest.mark.parametrize('name', EIGHT_GPUS)
def test_builds_and_its_learning_rate_decays_with_depth(name):
    stride, decay, depth = EIGHT_GPUS[name]
    cfg = config(name)
    with torch.device('meta'):
        model = build_model(cfg)  # it checks the channels of the neck, and the strides of the anchors
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


@pytest.mark.parametrize('token_norm_cfg', [None, dict(type='DTN', init='layer_norm')], ids=['LN', 'DTN'])
@pytest.mark.parametrize('name', ['retinanet_dinov3-vit-s_sfp_1x_coco', 'retinanet_convnext-t_fpn_1x_coco'])
def test_a_step_has_finite_losses_and_gradients_everywhere(name, token_norm_cfg):
    cfg = config(name)
    backbone = cfg.model.backbone
    if token_norm_cfg and 'convnext' in name:
        pytest.skip('ConvNeXt has no attention next to its norms')
    args = backbone.timm_args | SMALL['vit' if 'vit' in name else 'convnext']
    cfg = cfg.copy()
    cfg.model = cfg.model | dict(backbone=backbone | dict(timm_args=args, token_norm_cfg=token_norm_cfg, init_cfg=None))
    model = build_model(cfg).train()
    truth = InstanceData(bboxes=torch.tensor([[10.0, 12.0, 60.0, 50.0]]), labels=torch.tensor([3]))
    samples = []
    for shape in [(64, 96), (60, 70)]:
        samples.append(DetDataSample(gt_instances=truth))
        samples[-1].set_metainfo(dict(img_shape=shape, batch_input_shape=(64, 96), pad_shape=(64, 96)))
    inputs = [torch.randint(0, 255, (3, *sample.img_shape), dtype=torch.uint8) for sample in samples]
    losses = model(**model.data_preprocessor(dict(inputs=inputs, data_samples=samples), True), mode='loss')
    loss, _ = model.parse_losses(losses)
    assert loss.isfinite()
    loss.backward()
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert [name for name in without if name.startswith('backbone')] == []
