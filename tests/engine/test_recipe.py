"""Options of `tokennorm train` reach the config, and values that cannot be right end in one line."""

import math
from types import SimpleNamespace

import pytest
import torch
from mmdet.datasets import AspectRatioBatchSampler
from mmdet.datasets.transforms import Mosaic, Resize
from mmdet.models import ResNet, RetinaNet
from mmengine.config import Config
from mmengine.dataset import DefaultSampler
from torch import nn
from torch.optim import SGD

from tokennorm.backbones import PVT, TimmBackbone
from tokennorm.checkpoints.reading import Checkpoint
from tokennorm.config.reading import name_types
from tokennorm.config.tree import set_num_classes
from tokennorm.engine.checks import check_feature_maps
from tokennorm.engine.options import TrainOptions
from tokennorm.engine.recipe import apply_options, find_resumed, open_plan
from tokennorm.engine.resume.sampler import ResumableBatchSampler
from tokennorm.engine.resume.training_state import make_resumable
from tokennorm.messages import UserError

CONFIG = 'retinanet_pvt-mini-dtn_fpn'


@pytest.mark.parametrize(
    ('name', 'value', 'path', 'entry'),
    [
        ('batch_size', 3, 'train_dataloader.batch_size', 3),
        ('seed', 0, 'randomness.seed', 0),
        ('freeze', 0, 'model.backbone.frozen_stages', 0),
        ('freeze', 2, 'model.backbone.frozen_stages', 2),
        ('workers', 0, 'test_dataloader.num_workers', 0),
        ('epochs', 7, 'train_cfg.max_epochs', 7),
    ],
)
def test_options_reach_the_config(name, value, path, entry):
    plan = open_plan(CONFIG)
    apply_options(plan, TrainOptions(CONFIG, **{name: value}))
    cfg = plan.cfg
    for key in path.split('.'):
        cfg = cfg[key]
    assert cfg == entry


def test_cfg_options_take_precedence_over_new_options():
    sets = {'train_dataloader.batch_size': 5, 'randomness.seed': 9, 'train_cfg.max_epochs': 4}
    plan = open_plan(CONFIG, options=sets)
    apply_options(plan, TrainOptions(CONFIG, batch_size=3, seed=1, epochs=20, cfg_options=sets))
    cfg = plan.cfg
    assert (cfg.train_dataloader.batch_size, cfg.randomness.seed, cfg.train_cfg.max_epochs) == (5, 9, 4)


def test_loaders_without_workers_have_no_options_of_workers():
    sets = {'train_dataloader.prefetch_factor': 4, 'train_dataloader.persistent_workers': True}
    plan = open_plan(CONFIG, options=sets)
    apply_options(plan, TrainOptions(CONFIG, workers=0, cfg_options=sets))
    cfg = plan.cfg
    assert 'prefetch_factor' not in cfg.train_dataloader
    assert not cfg.train_dataloader.persistent_workers


@pytest.mark.parametrize('name', ['epochs', 'image_size', 'batch_size', 'patience', 'workers', 'freeze', 'seed', 'lr'])
@pytest.mark.parametrize('value', [math.nan, math.inf, -1, 10**30, True, 1.5])
def test_numbers_that_cannot_be_right_are_refused(name, value):
    if name == 'lr' and value in (10**30, True, 1.5):
        return
    with pytest.raises(UserError, match=f'--{name.replace("_", "-")}'):
        TrainOptions(CONFIG, **{name: value})


@pytest.mark.parametrize('device', ['gpu', 'cuda:', 'cuda:x', 'mps:0', ''])
def test_devices_that_do_not_exist_are_refused(device):
    with pytest.raises(UserError, match='expected cpu, cuda or cuda:N'):
        TrainOptions(CONFIG, device=device)


def test_freezing_needs_a_backbone_with_stages():
    plan = open_plan(CONFIG)
    cfg = plan.cfg
    cfg.model.backbone = dict(type='mmdet.CSPNeXt')
    apply_options(plan, TrainOptions(CONFIG, freeze=1))
    assert cfg.model.backbone.frozen_stages == 1
    cfg.model.backbone = dict(type='mmdet.PyramidVisionTransformer')
    with pytest.raises(UserError, match='PyramidVisionTransformer of this config has no frozen_stages'):
        apply_options(plan, TrainOptions(CONFIG, freeze=1))


def test_resume_needs_a_work_directory(tmp_path):
    (tmp_path / 'runs').mkdir()
    cfg = open_plan(CONFIG, tmp_path / 'rnus').cfg
    with pytest.raises(UserError, match=r'rnus does not exist \(did you mean .*/runs\?\)'):
        find_resumed(cfg, TrainOptions(CONFIG, resume=True))
    # A launcher that restarts its ranks always resumes.
    assert find_resumed(cfg, TrainOptions(CONFIG, resume=True, launcher='pytorch')) is None


def test_a_checkpoint_of_another_run_overwrites_no_run(tmp_path):
    for name in ('a', 'b'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'epoch_1.pth').touch()
        (tmp_path / name / 'last_checkpoint').write_text(f'{tmp_path}/{name}/epoch_1.pth')
    options = TrainOptions(CONFIG, resume=str(tmp_path / 'a' / 'epoch_1.pth'))
    assert find_resumed(open_plan(CONFIG, tmp_path / 'a').cfg, options) == tmp_path / 'a'
    assert find_resumed(open_plan(CONFIG, tmp_path / 'c').cfg, options) == tmp_path / 'a'
    with pytest.raises(UserError, match='b has checkpoints already, such as epoch_1'):
        find_resumed(open_plan(CONFIG, tmp_path / 'b').cfg, options)


class Landscape:
    def get_data_info(self, index):
        return dict(width=20, height=10)


@pytest.mark.parametrize('inner', [None, dict(type='mmdet.AspectRatioBatchSampler')])
@pytest.mark.parametrize(('drop_last', 'batches'), [(True, 3), (False, 4)])
def test_drop_last_reaches_the_loader(inner, drop_last, batches):
    loader = dict(batch_size=4, drop_last=drop_last, batch_sampler=inner)
    cfg = Config(dict(train_dataloader=loader))
    make_resumable(cfg)
    assert 'drop_last' not in cfg.train_dataloader
    sampler = torch.utils.data.SequentialSampler(range(13))
    sampler.dataset = Landscape()
    arguments = {key: value for key, value in cfg.train_dataloader.batch_sampler.items() if key != 'type'}
    made = list(ResumableBatchSampler(sampler, 4, **arguments))
    assert (len(made), len(made[-1])) == (batches, 4 if drop_last else 1)


def own_function():
    """Not in a registry."""


def test_types_that_are_classes_are_named_and_read_again(tmp_path):
    cfg = Config(
        dict(
            default_scope=None,
            model=dict(type=RetinaNet, backbone=dict(type=PVT), other=dict(type=ResNet, ema_type=nn.Linear)),
            train_dataloader=dict(
                sampler=dict(type=DefaultSampler),
                batch_sampler=dict(type=AspectRatioBatchSampler),
                collate_fn=dict(type=own_function),
                dataset=dict(pipeline=[dict(type=Mosaic), dict(type=Resize, scale=(2, 3)), dict(type='Pad')]),
            ),
            optim_wrapper=dict(optimizer=dict(type=SGD, lr=0.1)),
        )
    )
    name_types(cfg)
    cfg.dump(tmp_path / 'written.py')
    read = Config.fromfile(tmp_path / 'written.py')
    assert read.to_dict() == cfg.to_dict()
    assert read.default_scope == 'mmdet'
    loader, model = read.train_dataloader, read.model
    assert [model.type, model.backbone.type, model.other.type] == ['RetinaNet', 'tokennorm.PVT', 'ResNet']
    assert model.other.ema_type.rpartition('.')[2] == 'Linear'
    assert [loader.sampler.type, loader.batch_sampler.type] == ['DefaultSampler', 'AspectRatioBatchSampler']
    assert loader.collate_fn.type == f'{__name__}.own_function'
    assert [step.type for step in loader.dataset.pipeline] == ['Mosaic', 'Resize', 'Pad']
    assert read.optim_wrapper.optimizer.type == 'SGD'


def test_forms_that_one_process_refuses_are_replaced():
    head, loop = dict(norm_cfg=dict(type='MMSyncBN')), dict(type='EpochBasedTrainLoop', by_epoch=True, max_epochs=3)
    cfg = Config(dict(model=dict(type='FasterRCNN', roi_head=dict(bbox_head=head)), train_cfg=loop))
    name_types(cfg)
    assert cfg.model.roi_head.bbox_head.norm_cfg.type == 'SyncBN'
    assert cfg.train_cfg == dict(type='EpochBasedTrainLoop', max_epochs=3)


@pytest.mark.parametrize(
    ('head', 'neck', 'fits'),
    [
        (dict(in_channels=24), None, True),
        (dict(in_channels=512), None, False),
        (dict(in_channels=512), dict(type='GlobalAveragePooling'), False),
        (dict(in_channels=512), dict(type='Another'), True),
        (dict(), None, True),
    ],
)
def test_the_head_of_a_classifier_has_the_channels_of_its_backbone(head, neck, fits):
    model = SimpleNamespace(backbone=SimpleNamespace(feature_info=[dict(num_chs=8), dict(num_chs=24)]))
    if fits:
        check_feature_maps(model, dict(head=head, neck=neck))
        return
    with pytest.raises(UserError, match=r'model.head: in_channels=512, .* \[8, 24\] channels: set it to 24'):
        check_feature_maps(model, dict(head=head, neck=neck))


@pytest.mark.parametrize(
    ('keys', 'is_detector'),
    [
        (['backbone.a', 'head.fc.weight'], False),
        (['backbone.a', 'neck.fc.weight', 'head.fc.weight', 'data_preprocessor.mean'], False),
        (['backbone.a', 'data_preprocessor.mean'], False),
        (['backbone.a', 'neck.a', 'bbox_head.a'], True),
        (['backbone.a', 'rpn_head.a', 'roi_head.a'], True),
        (['stages.0', 'head.weight'], False),
    ],
)
def test_a_classifier_is_not_a_detector(keys, is_detector):
    content = dict(state_dict={key: torch.zeros(1) for key in keys})
    assert Checkpoint('x.pth', content).is_detector == is_detector


def test_timm_models_have_their_names_on_the_hub_and_no_download():
    backbone = TimmBackbone('timm/resnet18.a1_in1k')
    assert [entry['num_chs'] for entry in backbone.feature_info] == [64, 128, 256, 512]
    with pytest.raises(ValueError, match=r'timm_args.pretrained=True: nothing is downloaded; .*init_cfg'):
        TimmBackbone('resnet18', timm_args=dict(pretrained=True))


def test_heads_of_masks_and_weights_of_losses_follow_the_classes():
    mask2former = dict(num_things_classes=80, num_stuff_classes=0, loss_cls=dict(class_weight=[1.0] * 80 + [0.1]))
    model = dict(panoptic_head=mask2former, bbox_head=dict(num_classes=3, loss_cls=dict(class_weight=[2.0] * 3)))
    set_num_classes(model, 2)
    assert (mask2former['num_things_classes'], mask2former['loss_cls']['class_weight']) == (2, [1.0, 1.0, 0.1])
    assert model['bbox_head'] == dict(num_classes=2, loss_cls=dict(class_weight=[2.0, 2.0]))
    model['bbox_head']['loss_cls']['class_weight'] = [1.0, 3.0, 1.0]
    with pytest.raises(UserError, match=r'bbox_head\.loss_cls\.class_weight has 3 values'):
        set_num_classes(model, 4)
