"""DINO: loss and teacher of one step, evaluation of features, and weights for a detector."""

import runpy
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mmengine import DefaultScope
from mmengine.logging import MessageHub
from mmengine.optim import build_optim_wrapper
from PIL import Image

import tokennorm
from experiments.self_supervision.dino import DINO
from experiments.self_supervision.evaluation import knn_accuracy, linear_accuracy
from tests.helpers.compare import assert_near
from tests.helpers.configs import build_model, resolve
from tokennorm.backbones import ViT

pytestmark = pytest.mark.filterwarnings('ignore:`torch.nn.utils.weight_norm` is deprecated')  # lightly's head
ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / 'projects' / 'experiments' / 'self_supervision'
ARCH = dict(embed_dims=16, depths=2, num_heads=4, mlp_ratios=2)
BACKBONE = dict(patch_size=4, pretrain_img_size=16, l_dtn=1, token_norm_cfg=dict(type='DTN'), drop_path_rate=0.0)
HEAD = dict(out_dims=6, hidden_dims=8, bottleneck_dims=4)


@pytest.fixture(autouse=True, scope='module')
def lightly():
    """Imported when the tests run: that takes as long as importing torch."""
    return pytest.importorskip('lightly')


@pytest.fixture
def at_iteration(monkeypatch):
    """Sets what mmengine's runner notes before each step."""
    info = dict(iter=0, max_iters=101, epoch=0)
    monkeypatch.setattr(MessageHub, 'get_info', lambda self, key, default=None: info.get(key, default))
    return info


def dino(norm='DTN', **kwargs):
    backbone = dict(type='ViT', arch=ARCH, out_type='cls_token', **BACKBONE | dict(token_norm_cfg=dict(type=norm)))
    return DINO(backbone, **HEAD | kwargs).train()


def views(batch=3):
    return [torch.randn(batch, 3, side, side) for side in (16, 16, 8, 8, 8)]


@torch.no_grad()
def shake(model):
    for p in model.parameters():
        p.add_(0.1 * torch.randn_like(p))


def test_loss_is_the_cross_entropy_of_the_paper(at_iteration):
    """Teacher on global views, student on all; views are not compared with themselves; the center moves after."""
    model, inputs = dino(), views()
    shake(model)
    model.criterion.center.normal_()
    center = model.criterion.center.clone()
    actual = model(inputs, mode='loss')['loss']
    terms = []
    with torch.no_grad():
        taught = [model.head(model.backbone(view)[0]) for view in inputs[:2]]
        for i, teacher in enumerate(taught):
            target = ((teacher - center[0]) / 0.04).softmax(dim=1)
            for j, view in enumerate(inputs):
                if i != j:
                    log_p = (model.student_head(model.student_backbone(view)[0]) / 0.1).log_softmax(dim=1)
                    terms.append(-(target * log_p).sum(dim=1).mean())
    assert len(terms) == 8
    assert_near('loss', actual, torch.stack(terms).mean())
    assert_near('center', model.criterion.center[0, 0], 0.9 * center[0, 0] + 0.1 * torch.cat(taught).mean(dim=0))


def test_teacher_is_the_moving_average_of_the_student(at_iteration):
    """Momentum 0.9 at the beginning, 0.95 in the middle, 1 at the end; the same weights at the start; no gradients."""
    model = dino(momentum=0.9)
    for name, p in model.backbone.named_parameters():
        assert torch.equal(p, model.student_backbone.get_parameter(name))
    shake(model)
    for iteration, momentum in ((0, 0.9), (50, 0.95), (100, 1.0)):
        at_iteration['iter'] = iteration
        teacher, student = model.backbone.blocks[1].mlp.fc1.weight, model.student_backbone.blocks[1].mlp.fc1.weight
        expected = momentum * teacher.detach() + (1 - momentum) * student.detach()
        loss = model(views(), mode='loss')['loss']
        assert_near(f'iteration {iteration}', teacher.detach(), expected)
    loss.backward()
    learned = {name for name, p in model.named_parameters() if p.grad is not None}
    assert learned == {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name.split('.')[0] for name in learned} == {'student_backbone', 'student_head'}


def test_a_detector_takes_the_weights_of_the_teacher(tmp_path):
    model = dino()
    shake(model)
    path = tmp_path / 'iter_100.pth'
    torch.save(dict(state_dict=model.state_dict(), meta={}), path)
    detector = ViT(arch=ARCH, out_type='featmap', **BACKBONE, init_cfg=dict(type='Pretrained', checkpoint=str(path)))
    detector.init_weights()
    for name, p in detector.blocks.named_parameters():
        assert torch.equal(p, model.backbone.blocks.get_parameter(name)), name
    assert torch.equal(detector.pos_embed, model.backbone.pos_embed)
    assert not torch.equal(detector.pos_embed, model.student_backbone.pos_embed)
    assert torch.equal(detector.patch_embed.proj.weight, model.backbone.patch_embed.proj.weight)


def test_accuracies_of_features_in_clusters():
    """Directions of three classes, of different lengths: cosine similarity separates them, and so does a line."""
    labels = torch.arange(30) % 3
    features = F.one_hot(labels, 4).float() * torch.rand(30, 1).add(0.5) + 0.01 * torch.randn(30, 4)
    assert knn_accuracy(features, labels, features.clone(), labels, k=5) == 1
    assert linear_accuracy(features, labels, features.clone(), labels) == 1
    wrong = (labels + (torch.arange(30) < 12)) % 3
    assert knn_accuracy(features, labels, features.clone(), wrong, k=5) == pytest.approx(18 / 30)
    assert linear_accuracy(features, labels, features.clone(), wrong) == pytest.approx(18 / 30)


@pytest.mark.slow
@pytest.mark.parametrize('norm', ['LN', 'DTN'])
def test_trains_and_evaluates_with_the_reduced_config(norm, tmp_path, monkeypatch, capsys):
    """Two steps and one more after a resumption. The tool reads the checkpoint and prints two rows."""
    for split in ('train', 'val'):
        for label in 'ab':
            (tmp_path / split / label).mkdir(parents=True)
            for i in range(12):
                pixels = torch.randint(256, (64, 64, 3), dtype=torch.uint8).numpy()
                Image.fromarray(pixels).save(tmp_path / split / label / f'{i}.png')
    options = {'train_dataloader.dataset.data_root': str(tmp_path), 'train_dataloader.batch_size': 4}
    options |= {'train_cfg.max_iters': 2, 'default_hooks.checkpoint.interval': 1}
    options |= {'model.backbone.token_norm_cfg.type': norm}
    config = str(PROJECT / 'configs' / 'dino_vit-mini_1xb128_tiny-imagenet100.py')
    tokennorm.train(config, work_dir=tmp_path / 'run', cfg_options=options)
    tokennorm.train(config, work_dir=tmp_path / 'run', cfg_options=options | {'train_cfg.max_iters': 3}, resume=True)
    words = ['tool', config, str(tmp_path / 'run'), '--cfg-options', f'model.backbone.token_norm_cfg.type={norm}']
    words += [f'evaluation.{part}.data_root={tmp_path}' for part in ('bank', 'queries')]
    monkeypatch.setattr(sys, 'argv', words)
    capsys.readouterr()
    runpy.run_path(str(PROJECT / 'evaluate_features.py'), run_name='__main__')
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == '24 images in the bank, 24 queries'
    assert [row.split(':')[0] for row in rows[1:]] == ['initial weights', str(tmp_path / 'run')]


def test_linear_evaluation_trains_the_head_only():
    """The norm after the last block is frozen too."""
    config = PROJECT / 'configs' / 'dino_vit-small_linear_8xb128_in1k.py'
    with torch.device('meta'):
        cfg = resolve(config)
        cfg.model.backbone.init_cfg = None
        cfg.model.backbone.update(token_norm_cfg=dict(type='DTN'), l_dtn=10)
        model = build_model(cfg).train()
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {'head.fc.weight', 'head.fc.bias'}
    assert model.backbone.norm.weight.shape == (cfg.model.head.in_channels,)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    assert {(group['lr'], group['momentum'], group['weight_decay']) for group in optimizer.param_groups} == {
        (0.004, 0.9, 0.0)  # 0.001 per 256 of the 8 x 128 images
    }
