"""One optimizer step of a detector of each kind: every backbone in every detector with each norm and stem."""

import re
from copy import deepcopy

import pytest
import torch
from mmengine import Config, DefaultScope
from mmengine.optim import build_optim_wrapper

from tests.helpers.configs import ROOT, build_model, resolve
from tests.helpers.samples import sample_with_two_objects

DETECTORS = ('retinanet', 'mask-rcnn')
BACKBONES = ('pvt/{}_pvt-t_fpn', 'pvt_v2/{}_pvtv2-b2_fpn', 'swin/{}_swin-t-p4-w7_fpn', 'vit/{}_vit-s_sfp')
DTN, DPN = dict(token_norm_cfg=dict(type='DTN')), dict(stem_cfg=dict(type='DualPatchEmbed'))
VARIANTS = {'LN': {}, 'DTN': DTN, 'DPN': DPN, 'DTN-DPN': DTN | DPN}


@pytest.mark.slow
@pytest.mark.parametrize('variant', VARIANTS)
@pytest.mark.parametrize('backbone', BACKBONES)
@pytest.mark.parametrize('detector', DETECTORS)
def test_one_step_has_finite_loss_and_all_gradients(detector, backbone, variant):
    """Distributed training then needs no `find_unused_parameters`."""
    cfg = deepcopy(resolve(ROOT / f'{backbone.format(detector)}_1x_coco.py'))
    cfg.model.backbone.update(VARIANTS[variant])
    if 'rcnn' in cfg.model.train_cfg:
        cfg.model.train_cfg.rcnn.sampler.num = 32  # regions of interest an image, for time
    model = build_model(cfg).train()
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in trained.items()}
    gradients = {}
    for name, p in trained.items():
        p.register_post_accumulate_grad_hook(lambda p, name=name: gradients.update({name: p.grad.isfinite().all()}))
    data = dict(inputs=[torch.randint(0, 256, (3, 96, 128))] * 2, data_samples=[sample_with_two_objects()] * 2)
    losses = model.train_step(data, optim_wrapper)
    assert len([name for name in losses if 'loss' in name]) > 2
    assert all(loss.isfinite() for loss in losses.values()), losses
    assert [name for name in trained if not gradients.get(name, False)] == []
    moved = {name for name, p in trained.items() if not torch.equal(p, before[name])}
    assert {name for name in trained if name.startswith('backbone.')} <= moved


GUIDE = (ROOT.parent / 'docs' / 'guides' / 'migrate.md').read_text()


@pytest.mark.slow
@pytest.mark.parametrize(('title', 'text'), re.findall(r'^### (.*)\n\n```python\n([^`]*)```', GUIDE, re.M))
def test_a_documented_detector_trains_for_a_step(title, text, tmp_path):
    (tmp_path / 'config.py').write_text(text)
    cfg = Config.fromfile(tmp_path / 'config.py')
    cfg.model.backbone.update(init_cfg=None, drop_path_rate=0.0)
    if 'rcnn' in cfg.model.get('train_cfg', {}) and isinstance(cfg.model.train_cfg.rcnn, dict):
        cfg.model.train_cfg.rcnn.sampler.num = 32
    cfg.model.data_preprocessor.pop('batch_augments', None)
    cfg.optim_wrapper.pop('clip_grad', None)
    if title == 'DINO-DETR':
        cfg.model.num_queries = 60  # the image has few tokens
    model = build_model(cfg).train()
    model.init_weights()  # mmdet's DINO leaves `level_embed` as it found the memory
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    sample = sample_with_two_objects()
    if title == 'RTMDet':
        del sample.gt_instances.masks
    data = dict(inputs=[torch.randint(0, 256, (3, 96, 128))] * 2, data_samples=[sample] * 2)
    before = {name: p.detach().clone() for name, p in model.backbone.named_parameters() if p.requires_grad}
    losses = model.train_step(data, optim_wrapper)
    assert all(loss.isfinite() for loss in losses.values()), losses
    after = dict(model.backbone.named_parameters())
    assert [name for name, p in before.items() if torch.equal(p, after[name])] == []
