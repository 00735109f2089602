"""One optimizer step of a detector of each kind: every backbone in every detector with each norm and stem."""

import re
from copy import deepcopy
from itertools import product

import pytest
import torch
from mmengine import DefaultScope
from mmengine.optim import build_optim_wrapper

from tests.test_backbones_precision import sample_with_two_objects
from tests.test_configs import COCO, QUICK, build_model, name_of, resolve

DETECTORS = ('retinanet', 'mask-rcnn')
BACKBONES = ('pvt-t', 'pvt-v2-b0', 'swin-t-p4-w7', 'vit-s')
NORMS = ('', '-dtn', '-dpn', '-dtn-dpn')
OF_A_KIND = re.compile(rf'({"|".join(DETECTORS)})_({"|".join(BACKBONES)})({"|".join(NORMS)})_(?:fpn|sfp)_1x_coco')
KINDS = {match.groups(): path for path in COCO if (match := OF_A_KIND.match(path.name))}


def test_every_kind_has_a_config_and_the_quick_tests_build_every_backbone_and_detector():
    assert set(KINDS) == set(product(DETECTORS, BACKBONES, NORMS))
    assert {path.parent.name for path in KINDS.values()} == {path.parent.name for path in COCO}
    quick = {kind[:2] for kind, path in KINDS.items() if QUICK.search(path.name)}
    assert quick == set(product(DETECTORS, BACKBONES))


@pytest.mark.slow
@pytest.mark.parametrize('path', KINDS.values(), ids=name_of)
def test_a_step_has_a_finite_loss_and_a_gradient_for_every_parameter(path):
    """Distributed training then needs no `find_unused_parameters`."""
    cfg = deepcopy(resolve(path))
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
