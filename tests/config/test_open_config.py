"""Options that are spelt wrong, or that nothing would read, end with what to do."""

import inspect
import re
import sys

import pytest
from mmdet.datasets import AspectRatioBatchSampler
from mmdet.datasets.transforms import Mosaic, Resize
from mmdet.models import ResNet, RetinaNet
from mmengine.config import Config
from mmengine.dataset import DefaultSampler
from mmengine.runner import Runner
from torch import nn
from torch.optim import SGD

from tokennorm.backbones import PVT
from tokennorm.base.messages import UserError
from tokennorm.config.open_config import (
    check_options,
    drop_variables,
    merge_options,
    name_types,
    read_config,
    unread_entries,
    use_options,
)


def config():
    return Config(
        dict(
            model=dict(
                backbone=dict(type='tokennorm.PVT', init_cfg=None),
                test_cfg=dict(score_thr=0.05),
                train_cfg=dict(rpn={}, rcnn=[dict(num=1), {}]),
                detector=dict(test_cfg=dict(rpn={}, rcnn=dict(score_thr=0.1))),
            ),
            train_cfg=dict(max_epochs=12),
            custom_hooks=[dict(type='A', scale=1), dict(type='B')],
            train_dataloader=dict(batch_size=2, num_workers=2),
            max_epochs=12,  # a variable of the file
        )
    )


def own_function():
    """Not in a registry."""


def test_entries_are_set_and_new_arguments_pass():
    cfg = config()
    options = {
        'model.backbone.drop_path_rate': 0.2,
        'model.backbone.stem_cfg.type': 'DualPatchEmbed',
        'model.test_cfg.nms_pre': 10,
        'train_cfg.max_epochs': 3,
        'custom_hooks.0.scale': 2,
        'randomness.seed': 1,
        'resume': True,
        'train_dataloader.pin_memory': True,
    }
    check_options(cfg, options)
    merge_options(cfg, options)
    assert (cfg.model.backbone.drop_path_rate, cfg.model.backbone.stem_cfg.type) == (0.2, 'DualPatchEmbed')
    assert (cfg.train_cfg.max_epochs, cfg.custom_hooks[0].scale, cfg.custom_hooks[1].type) == (3, 2, 'B')
    assert (cfg.randomness.seed, cfg.resume) == (1, True)


@pytest.mark.parametrize(
    ('key', 'message'),
    [
        ('model.test_cfg.scor_thr', r'model.test_cfg has no scor_thr \(did you mean score_thr\?\)'),
        ('train_cfg.max_epoch', r'train_cfg has no max_epoch \(did you mean max_epochs\?\)'),
        ('train_dataloader.batchsize', r'train_dataloader has no batchsize \(did you mean batch_size\?\)'),
        ('model.backbone.drop_path_rates', r'has no drop_path_rates \(did you mean drop_path_rate\?\)'),
        ('max_epochs', 'nothing reads max_epochs; set train_cfg.max_epochs'),
        ('my_note', 'nothing reads my_note$'),
        ('model.train_cfg.num', r'model.train_cfg has no num; set model.train_cfg.rcnn.0.num'),
        ('model.detector.test_cfg.score_thr', r'model.detector.test_cfg has no .*; set .*.test_cfg.rcnn.score_thr'),
    ],
)
def test_keys_that_nothing_would_read_are_refused(key, message):
    with pytest.raises(UserError, match=message):
        check_options(config(), {key: 1})


def test_variables_are_left_out_of_the_written_config():
    cfg = config()
    drop_variables(cfg)
    assert set(cfg) == {'model', 'train_cfg', 'custom_hooks', 'train_dataloader'}


@pytest.mark.parametrize('imports', [['tokennorm', 'my.hooks'], 'my'])
def test_variables_stay_for_code_of_the_users_own(imports):
    cfg = config()
    cfg.custom_imports = dict(imports=imports)
    drop_variables(cfg)
    use_options(cfg, dict(max_epochs=7))
    assert cfg.max_epochs == 7


@pytest.mark.parametrize('more', [dict(default_scope='mmyolo'), dict(custom_hooks=[dict(type='my.Hook')])], ids=str)
def test_variables_stay_for_other_packages(more):
    cfg = config()
    cfg.update(more)
    drop_variables(cfg)
    assert 'max_epochs' in cfg


def test_entries_that_the_runner_reads_stay():
    source = inspect.getsource(sys.modules[Runner.__module__])
    read = set(re.findall(r"\bself\.cfg\.get\(\s*'(\w+)'", source))
    cfg = Config(dict.fromkeys(read))
    drop_variables(cfg)
    assert set(cfg) == read > {'activation_checkpointing', 'efficient_conv_bn_eval'}


def test_names_in_a_file_that_nothing_reads_are_named(tmp_path):
    base = """
max_epochs = 2
train_cfg = dict(max_epochs=max_epochs)
model = dict(type='RetinaNet')
"""
    (tmp_path / 'base.py').write_text(base)
    child = """
_base_ = './base.py'
scale = (64, 64)
max_epochs = 1
optim_wraper = dict()
lr_config = dict(step=[1])
test_pipeline = [dict(type='Resize', scale=scale)]
model = dict(test_cfg={{_base_.train_cfg}})
compile = False
"""
    (tmp_path / 'child.py').write_text(child)
    path = str(tmp_path / 'child.py')
    found = [entry for name in ('base', 'child') for entry in unread_entries(read_config(tmp_path / f'{name}.py'))]
    assert found == [
        (path, 'nothing reads max_epochs; set train_cfg.max_epochs'),
        (path, 'nothing reads optim_wraper (did you mean optim_wrapper?)'),
        (path, 'nothing reads lr_config'),
        (path, 'nothing reads test_pipeline'),
    ]


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
