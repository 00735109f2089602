"""Rules about recipes and checkpoints: inputs on which each fires, and right ones on which it is quiet.

A row is a code, whether it fires, and a change of the recipe that `tests/helpers/recipes.py` builds. What someone
reports becomes a row here.
"""

import json
import random
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from mmdet.datasets import CocoDataset
from mmdet.engine.hooks import PipelineSwitchHook, YOLOXModeSwitchHook
from mmdet.evaluation import CocoMetric, VOCMetric
from mmdet.registry import DATASETS
from mmengine.config import Config
from mmengine.hooks import CheckpointHook, EarlyStoppingHook, EMAHook
from mmengine.optim import OptimWrapper
from torch import nn
from torch.utils.data import ConcatDataset

from tests.helpers.handmade_onnx import SeesPadding
from tests.helpers.recipes import build_recipe, copy_of, findings_of, judge, sets
from tokennorm.checkpoints import Checkpoint, read_checkpoint
from tokennorm.config.open_config import read_config
from tokennorm.engine.resume.resumed_schedule import use_settings_of_run
from tokennorm.engine.rules import verify
from tokennorm.export.measure import change_by_padding
from tokennorm.findings import RULES, Findings, Refusal, judging, rules_about
from tokennorm.layers.layer_norm_2d import LayerNorm2d
from tokennorm.norms import GroupNorm
from tokennorm.plan.changes import Plan
from tokennorm.plan.data import fit_or_describe_anchors, resize_images
from tokennorm.plan.schedule import fit_schedule

FIRES, QUIET = True, False
CLASSES = ('disk', 'square', 'triangle', 'star')  # of the recipe
TRAIN, VAL = 'cfg__train_dataloader__dataset__', 'cfg__val_dataloader__dataset__'


def part(**values):
    """A module with attributes, such as a head."""
    module = nn.Module()
    vars(module).update(values)
    return module


def group_norm_in_the_backbone(built):
    """The package's own, which leaves the padding out of the statistics."""
    built.model.neck = built.model.bbox_head = nn.Identity()
    built.model.backbone.norm = GroupNorm(4, num_groups=2)


def classes(split, *names, **meta):
    return sets(**{f'data__{split}___metainfo': dict(classes=names, **meta)})


def head(name='another_head', **values):
    return sets(**{f'model__{name}': part(loss_cls=0, **values)})


def hooks(*more):
    return lambda built: built.hooks.extend(more)


def length(epochs):
    return sets(cfg__train_cfg=dict(max_epochs=epochs))


def warm_up(**values):
    return sets(schedulers=[dict(type='LinearLR', begin=0, start_factor=0.1, **values)])


def works_with(fits):
    """A backbone that refuses images with other sides."""

    def check(_, inputs):
        if not all(map(fits, inputs[0].shape[-2:])):
            raise RuntimeError('sides')

    return lambda built: built.model.backbone.register_forward_pre_hook(check)


def only(hook):
    return sets(hooks=[hook])


def both(*changes):
    return lambda built: [change(built) for change in changes] and None


def paramwise(constructor='DefaultOptimWrapperConstructor', **rules):
    sgd = dict(type='SGD', lr=0.1, weight_decay=0.1)
    return sets(cfg__optim_wrapper=dict(constructor=constructor, optimizer=sgd, paramwise_cfg=rules))


def checkpoint(resume=True, split='train', load_from='a.pth', **content):
    def change(built):
        built.checkpoint, built.splits = (
            Checkpoint('a.pth', dict(dict(state_dict={}, optimizer={}), **content)),
            (split,),
        )
        built.cfg.update(resume=resume, load_from=load_from)

    return change


def reads(value):
    def change(built):
        torch.save(dict(state_dict={'a.weight': torch.ones(2), 'a.mask': value}), built.folder / 'a.pth')
        read_checkpoint(built.folder / 'a.pth')

    return change


def trained_with(*names):
    return dict(meta=dict(dataset_meta=dict(classes=names)))


def plateau(**values):
    return sets(schedulers=[dict(type='ReduceOnPlateauLR', **values)])


def as_file(text):
    """A change of the recipe whose config has these lines, read with its base."""

    def change(built):
        folder = built.folder
        (folder / 'base.py').write_text(
            "epochs = 2\ntrain_cfg = dict(max_epochs=epochs)\nmodel = dict(type='RetinaNet')\n"
        )
        (folder / 'child.py').write_text(f"_base_ = './base.py'\n{text}\n")
        built.cfg = read_config(folder / 'child.py')

    return change


def val_ids(first, second=None):
    """A change: the images of val get names and ids, and the evaluator those of `second`."""

    def change(built):
        images = [dict(img_id=key, img_path=f'a/{name}', instances=[]) for key, name in first]
        built.data['val'] = Infos(images)
        api = SimpleNamespace(imgs={key: dict(file_name=name) for key, name in second or first})
        built.metrics['val'][0]._coco_api = api

    return change


class Infos(list):
    """A dataset of infos."""

    metainfo = dict(classes=CLASSES)
    get_data_info = list.__getitem__


class Points(list):
    """A dataset of torch's own kind."""


class Samples:
    """A dataset of images with objects each, of which its pipeline keeps some."""

    pipeline = ()

    def __init__(self, kept, objects=2):
        self.kept, self.objects = kept, objects

    def __len__(self):
        return len(self.kept)

    def get_data_info(self, index):
        return dict(instances=[dict(ignore_flag=0)] * self.objects + [dict(ignore_flag=1)])

    def __getitem__(self, index):
        return dict(data_samples=SimpleNamespace(gt_instances=[0] * self.kept[index]))


class Crops(Samples):
    """Half of the crops of an image have objects."""

    def __getitem__(self, index):
        return dict(data_samples=SimpleNamespace(gt_instances=[0] * (random.random() < 0.5)))


def samples(kept, objects=2, kind=Samples):
    return sets(data=dict(train=kind(kept, objects)))


def wrapped(dataset, inner):
    dataset.dataset = inner
    return sets(data=dict(train=dataset))


def concat(*datasets):
    return sets(data=dict(train=ConcatDataset(datasets)))


def neck(**values):
    """A change: the FPN is built anew, with other arguments."""

    def change(built):
        from mmdet.models.necks import FPN

        given = dict(in_channels=[32, 64, 128, 256], out_channels=8, start_level=1, num_outs=3)
        built.model.neck = FPN(**given | dict(add_extra_convs='on_input') | values)

    return change


def frozen(stages, weights=None):
    return sets(model__backbone__frozen_stages=stages, model__backbone__init_cfg=weights)


def anchors(side, octave_base_scale=3):
    """A change: the anchors are compared with objects of this side."""

    def change(built):
        built.cfg.model.bbox_head.anchor_generator.octave_base_scale = octave_base_scale
        images = [dict(id=1, width=128, height=128)]
        boxes = [dict(image_id=1, bbox=[x, x, side, side], iscrowd=0) for x in range(0, 128 - side, 5)]
        fit_or_describe_anchors(Plan(built.cfg), dict(images=images, annotations=boxes), may_change=False)

    return change


def resized(**step):
    """A change: images get another size, and a step of the pipeline has these arguments."""

    def change(built):
        built.cfg.train_dataloader.dataset.pipeline.append(dict(type='OfTheUser', **step))
        resize_images(Plan(built.cfg), 64)

    return change


def schedule(end, stretch=False):
    """A change: the schedule of the recipe ends after so many epochs."""

    def change(built):
        one = dict(type='CosineAnnealingLR', begin=0, end=end, by_epoch=True)
        cfg = Config(dict(train_cfg=dict(max_epochs=12), param_scheduler=[one]))
        loop = SimpleNamespace(max_iters=36)
        runner = SimpleNamespace(param_schedulers=[one], cfg=cfg, train_loop=loop, train_dataloader=range(3))
        fit_schedule(runner, Plan(cfg), cfg.train_cfg, stretch)

    return change


def exported(score=0.0, pixels=0.0):
    """A change: padding changes a score and a box of an exported file by this."""

    def change(built):
        cv2.imwrite(str(built.folder / 'a.png'), np.zeros((8, 8, 3), np.uint8))
        split = SimpleNamespace(image_dir=built.folder, content=dict(images=[dict(file_name='a.png')]))
        change_by_padding(SeesPadding(score, pixels), split)

    return change


def resumed(groups, **settings):
    """A change: a run with SGD resumes from a checkpoint whose optimizer has these groups and settings."""

    def change(built):
        sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
        wrapper = OptimWrapper(sgd)
        state = sgd.state_dict()
        given = {key: value for key, value in state['param_groups'][0].items() if key != 'betas'} | settings
        if 'betas' in settings:
            del given['momentum']
        content = dict(
            optimizer=dict(state, param_groups=[given] * groups), meta=dict(iter=0, epoch=0), param_schedulers=[]
        )
        runner = SimpleNamespace(optim_wrapper=wrapper, param_schedulers=[], train_dataloader=range(3))
        use_settings_of_run(runner, content)

    return change


def loader(length, batch=4, epochs=1):
    def change(built):
        one = type('Loader', (list,), dict(dataset=range(3), batch_sampler=SimpleNamespace(batch_size=batch)))
        built.loops['train'] = SimpleNamespace(dataloader=one(range(length)), max_iters=length * epochs)

    return change


def layers(built):
    built.model.backbone = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))


def other_backbone(built):
    built.model.backbone = nn.Linear(2, 3)


DECAY = 'tokennorm.LayerDecayOptimWrapperConstructor'
SWITCH, MODE = PipelineSwitchHook(2, []), YOLOXModeSwitchHook(2)
METRIC = 'coco/bbox_mAP'
CLASSWISE = sets(metrics__val__0__classwise=True)
MANY = dict(type='MultiDatasetsEvaluator', dataset_prefixes=['a'], metrics=[dict(type='CocoMetric')])
PROPOSALS = sets(metrics__val__0__metrics=['proposal'])
WEIGHTS = dict(type='Pretrained', checkpoint='a.pth')

LAYERS = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
QUARTER = dict(list(LAYERS.state_dict().items())[:1], other=torch.ones(1))
HALF_FITTING = dict(list(LAYERS.state_dict().items())[:2])
FITTING = {'backbone.weight': torch.ones(3, 2), 'backbone.bias': torch.ones(3)}

CASES = [
    ('missing-annotations', FIRES, sets(**{f'{TRAIN}ann_file': 'elsewhere.json'})),
    ('missing-annotations', FIRES, sets(**{f'{VAL}ann_file': '', f'{VAL}data_root': 'elsewhere'})),
    ('missing-annotations', QUIET, sets()),
    ('missing-annotations', QUIET, sets(**{f'{TRAIN}data_root': 's3://bucket/'})),
    ('missing-annotations', QUIET, sets(**{f'{TRAIN}ann_file': 'x.json', f'{TRAIN}backend_args': dict(a=1)})),
    ('class-names', FIRES, sets(**{f'{TRAIN}metainfo': dict(classes='cat')})),
    ('class-names', QUIET, sets(**{f'{TRAIN}metainfo': dict(classes=('cat',))})),
    ('class-names', QUIET, sets(**{f'{TRAIN}metainfo': dict(classes=__file__)})),
    ('class-order', FIRES, sets(**{f'{TRAIN}metainfo': dict(classes=CLASSES[::-1])})),
    ('class-order', FIRES, sets(**{f'{VAL}metainfo': dict(classes=('disk', 'cow'))})),
    ('class-order', FIRES, sets(**{f'{TRAIN}metainfo': {}})),  # those of COCO
    ('class-order', QUIET, sets()),
    ('class-order', QUIET, sets(**{f'{TRAIN}metainfo': dict(classes=('square', 'star'))})),
    ('class-order', QUIET, sets(**{f'{TRAIN}metainfo': dict(classes=CLASSES[::-1]), f'{TRAIN}type': 'VOCDataset'})),
    ('unread-entry', FIRES, as_file('optim_wraper = dict()')),
    ('unread-entry', FIRES, as_file('lr_config = dict(step=[1])')),
    ('unread-entry', FIRES, as_file('epochs = 1')),
    ('unread-entry', QUIET, as_file('scale = 3\nmodel = dict(scale=scale)\ncompile = False\nallow = []')),
    ('unread-entry', QUIET, as_file("my_gain = 3\ncustom_imports = dict(imports='tests.helpers')")),  # of a hook
    ('unread-entry', QUIET, as_file("my_gain = 3\ncustom_hooks = [dict(type='mine.Hook')]")),
    ('outside-recipe', FIRES, sets(cfg__train_cfg=dict(type='IterBasedTrainLoop', max_iters=90))),
    ('outside-recipe', FIRES, sets(cfg__model=dict(type='SoftTeacher', detector={}, semi_train_cfg={}))),
    ('outside-recipe', FIRES, sets(cfg__model=dict(type='GLIP', language_model={}))),
    ('outside-recipe', FIRES, sets(**{f'{TRAIN}type': 'CocoPanopticDataset'})),
    ('outside-recipe', QUIET, sets()),
    ('outside-recipe', QUIET, sets(cfg__model=dict(type='Mask2Former', panoptic_head=dict(num_things_classes=80)))),
    ('head-classes', FIRES, sets(model__bbox_head__num_classes=80)),
    ('head-classes', FIRES, classes('val', 'disk', 'square')),
    ('head-classes', FIRES, head(num_things_classes=1, num_classes=5)),  # Mask2Former
    ('head-classes', FIRES, sets(model__mask_head=part(num_classes=3, loss_mask=0))),
    ('head-classes', FIRES, sets(model__head=part(num_classes=3, loss_module=0))),  # a classifier with too few
    ('head-classes', QUIET, sets()),
    ('head-classes', QUIET, sets(model__head=part(num_classes=1000, loss_module=0))),
    ('head-classes', QUIET, head('rpn_head', num_classes=1)),
    ('head-classes', QUIET, sets(model__bbox_head=type('RPNHead', (nn.Module,), dict(num_classes=1, loss_cls=0))())),
    ('head-classes', QUIET, sets(model__reid=part(num_classes=380, loss_cls=0))),  # people, of a tracker
    ('head-classes', QUIET, sets(model__semantic_head=part(num_classes=183, loss_seg=0))),
    ('head-classes', QUIET, sets(model__backbone__num_classes=1000)),  # as timm's models have it
    ('head-classes', QUIET, head(num_things_classes=4, num_classes=7)),
    ('head-classes', QUIET, both(head(num_classes=80), sets(model__language_model=part()))),
    ('head-classes', QUIET, classes('val', *CLASSES, 'sky', thing_classes=CLASSES)),
    ('head-classes', QUIET, classes('val', *CLASSES, thing_classes=('person', 'car'))),  # of the dataset's class
    ('class-numbers', FIRES, classes('val', *CLASSES[::-1])),
    ('class-numbers', FIRES, classes('val', 'disk', 'triangle')),
    ('class-numbers', FIRES, sets(data__val=part(metainfo=[dict(classes=CLASSES), dict(classes=('star',))]))),
    ('class-numbers', QUIET, sets()),
    ('class-numbers', QUIET, classes('val', *CLASSES, 'another')),
    ('class-numbers', QUIET, both(classes('val', *CLASSES[::-1]), sets(model__language_model=part()))),
    ('evaluator-images', FIRES, val_ids([(1, 'a.jpg')], [(1, 'b.jpg')])),
    ('evaluator-images', FIRES, val_ids([(1, 'a.jpg'), (2, 'b.jpg')], [(2, 'a.jpg'), (1, 'b.jpg')])),
    ('evaluator-images', FIRES, val_ids([(1, 'a.jpg'), (2, 'b.jpg')], [(1, 'a.jpg')])),
    ('evaluator-images', QUIET, sets()),
    ('evaluator-images', QUIET, val_ids([(1, 'a.jpg'), (2, 'b.jpg')], [(2, 'b.jpg'), (1, 'a.jpg')])),
    ('evaluator-images', QUIET, val_ids([(1, 'a.jpg')], [(1, 'a.jpg'), (2, 'b.jpg')])),  # the first images of a file
    ('unknown-metric', FIRES, hooks(CheckpointHook(save_best='coco/bbox_mAPP'))),
    ('unknown-metric', FIRES, hooks(EarlyStoppingHook('loss'))),
    ('unknown-metric', FIRES, hooks(EarlyStoppingHook('coco/disk_precision'))),
    ('unknown-metric', FIRES, plateau()),
    ('unknown-metric', FIRES, both(PROPOSALS, hooks(EarlyStoppingHook(METRIC)))),
    ('unknown-metric', QUIET, hooks(CheckpointHook(save_best='auto'), EarlyStoppingHook(METRIC))),
    ('unknown-metric', QUIET, both(PROPOSALS, only(EarlyStoppingHook('coco/AR@100')))),
    ('unknown-metric', QUIET, both(sets(metrics__val__0__prefix='my'), only(EarlyStoppingHook('my/bbox_mAP_l')))),
    ('unknown-metric', QUIET, both(CLASSWISE, hooks(EarlyStoppingHook('coco/disk_precision')))),
    ('unknown-metric', QUIET, both(sets(metrics__val=[VOCMetric()]), hooks(EarlyStoppingHook('pascal_voc/mAP')))),
    ('unknown-metric', QUIET, both(sets(metrics__val__0=SimpleNamespace()), plateau())),  # one of the user
    ('unknown-metric', QUIET, both(sets(cfg__val_evaluator=MANY), hooks(EarlyStoppingHook('a/coco/bbox_mAP')))),
    ('unknown-metric', QUIET, both(sets(loops__val=SimpleNamespace(run=0)), plateau())),  # teacher and student
    ('no-mask-head', FIRES, sets(metrics__val__0__metrics=['bbox', 'segm'])),
    ('no-mask-head', QUIET, sets()),
    ('no-mask-head', QUIET, sets(metrics__val__0__metrics=['segm'], model__mask_head=part())),
    ('low-scores', FIRES, sets(model__test_cfg=dict(rpn=dict(nms_pre=9), rcnn=dict(score_thr=0.3)))),
    ('low-scores', FIRES, sets(model__test_cfg=dict(score_thr=0.2))),
    ('low-scores', QUIET, sets(model__test_cfg=dict(score_thr=0.05))),
    ('low-scores', QUIET, sets(model__test_cfg=dict(score_thr=0.3, rcnn=dict(score_thr=0.05)))),  # the inner is read
    ('low-scores', QUIET, sets(model__test_cfg=dict(score_thr=0.3), metrics__val=[part()])),  # panoptic quality
    ('neck-channels', FIRES, neck(in_channels=[32, 64, 128, 512])),
    ('neck-channels', FIRES, neck(in_channels=[64, 128, 256])),
    ('neck-channels', FIRES, sets(model__neck=None, model__head=part(in_channels=512))),  # a classifier
    ('neck-channels', QUIET, sets()),
    ('neck-channels', QUIET, sets(model__neck=nn.AdaptiveAvgPool2d(1), model__head=part(in_channels=256))),
    ('neck-channels', QUIET, sets(model__neck=None, model__head=part())),
    ('neck-channels', QUIET, sets(model__backbone=nn.Linear(1, 1))),
    ('anchor-strides', FIRES, neck(start_level=0, num_outs=4)),
    ('anchor-strides', FIRES, sets(model__bbox_head__prior_generator__strides=[(4, 4), (8, 8), (16, 16)])),
    ('anchor-strides', QUIET, sets()),
    ('anchor-strides', QUIET, sets(model__bbox_head__prior_generator__strides=[(8, 8), (16, 16), (100, 100)])),  # SSD
    ('anchor-strides', QUIET, sets(model__bbox_head__prior_generator__strides=[(7.97, 7.97), (15.7, 15.7)])),  # YOLACT
    ('anchor-strides', QUIET, sets(model__backbone=nn.Linear(1, 1))),
    ('random-frozen', FIRES, frozen(1)),
    ('random-frozen', QUIET, frozen(1, WEIGHTS)),
    ('random-frozen', QUIET, frozen(-1)),
    ('random-frozen', QUIET, both(frozen(1), sets(cfg__load_from='detector.pth'))),
    ('random-backbone', FIRES, frozen(-1)),
    ('random-backbone', QUIET, frozen(-1, WEIGHTS)),
    ('random-backbone', QUIET, frozen(1)),  # which is refused
    ('idle-custom-keys', FIRES, paramwise(custom_keys={'.depthwise': dict(lr_mult=20.0)})),
    ('idle-custom-keys', FIRES, paramwise(custom_keys=dict(backbone=dict(lr_mult=0.1), pos_emb=dict(decay_mult=0)))),
    ('idle-custom-keys', QUIET, paramwise(custom_keys={'.mean_logit': dict(lr_mult=2.0), 'stages.0': dict(a=2.0)})),
    ('idle-custom-keys', QUIET, paramwise(norm_decay_mult=0.0)),
    ('idle-custom-keys', QUIET, paramwise('OfTheUser', custom_keys=dict(a=dict(lr_mult=2.0)))),
    ('idle-custom-keys', QUIET, sets(cfg__optim_wrapper=dict(first=dict(paramwise_cfg=dict(a=1)), constructor='Mine'))),
    ('idle-custom-keys', FIRES, paramwise(DECAY, decay_rate=0.7, custom_keys=dict(a_b=dict(lr_mult=2.0)))),
    ('late-stages', FIRES, both(hooks(SWITCH), length(2))),
    ('late-stages', FIRES, both(hooks(MODE), length(2))),
    ('late-stages', FIRES, hooks(CheckpointHook(save_begin=50))),
    ('late-stages', FIRES, hooks(EMAHook(begin_epoch=15))),
    ('late-stages', QUIET, both(hooks(SWITCH, MODE, EMAHook(begin_epoch=3)), length(3))),
    ('late-stages', QUIET, hooks(CheckpointHook(save_begin=50, by_epoch=False))),
    ('late-stages', QUIET, both(hooks(SWITCH), sets(cfg__train_cfg=dict(max_iters=9)))),
    ('endless-warm-up', FIRES, warm_up(end=500, by_epoch=False)),
    ('endless-warm-up', FIRES, both(loader(50), warm_up(end=2))),
    ('few-iterations', FIRES, loader(1, 32, epochs=12)),  # 30 images
    ('few-iterations', FIRES, loader(39, 1)),
    ('few-iterations', QUIET, loader(4, 8, epochs=20)),
    ('few-iterations', QUIET, loader(40, 1)),
    ('endless-warm-up', QUIET, both(loader(50), warm_up(end=2, by_epoch=False))),
    (
        'endless-warm-up',
        QUIET,
        both(loader(50), sets(schedulers=[dict(type='CosineAnnealingLR', T_max=500, by_epoch=False)])),
    ),
    ('no-batch', FIRES, loader(0)),
    ('no-batch', QUIET, loader(1)),
    ('no-batch', QUIET, sets(loops=dict(train=SimpleNamespace(dataloader=iter(()))))),  # without a length
    ('no-batch', QUIET, sets()),
    ('no-objects', FIRES, samples([0] * 12, objects=0)),
    ('no-objects', FIRES, concat(Samples([0] * 3, 0), Samples([1] * 3, 0))),
    ('no-objects', QUIET, concat(Samples([0] * 3, 0), Samples([1] * 3, 1))),
    ('no-objects', QUIET, sets(data=dict(train=Points('ab')))),
    ('no-objects', QUIET, wrapped(Samples([0] * 3, 0), Samples([0] * 12, 0))),  # some of the images
    ('lost-objects', FIRES, samples([0] * 12)),
    ('lost-objects', FIRES, samples([0] * 40 + [1])),  # the first 16 show it
    ('lost-objects', FIRES, concat(Samples([1] * 3), Samples([0] * 3))),
    ('lost-objects', FIRES, concat(Samples([1] * 3, 0), Samples([0] * 3))),
    ('lost-objects', QUIET, samples([0] * 11 + [1])),
    ('lost-objects', QUIET, concat(Samples([1] * 3), Crops([0]))),
    ('lost-objects', QUIET, sets()),
    ('unfit-size', FIRES, works_with(lambda side: side >= 160)),
    ('unfit-size', FIRES, works_with(lambda side: side % 96 == 0)),
    ('unfit-size', FIRES, both(works_with(lambda side: side >= 160), sets(loops={}, data={}))),  # without data
    ('unfit-size', QUIET, sets()),
    ('unfit-size', QUIET, works_with(lambda side: False)),  # which is not for its size
    ('unfit-size', QUIET, works_with(lambda side: side % 32 == 0)),
    ('unfit-size', QUIET, both(works_with(lambda side: side >= 128), sets(loops={}, data={}))),
    ('poor-anchors', FIRES, anchors(26, octave_base_scale=16)),
    ('poor-anchors', QUIET, anchors(26)),
    ('poor-anchors', QUIET, anchors(3)),  # no other sizes match more
    ('unscaled-size', FIRES, resized(tile_size=256)),
    ('unscaled-size', FIRES, resized(cut=128)),  # the image size itself
    ('unscaled-size', QUIET, resized(scale=256)),
    ('unscaled-size', QUIET, resized(patch_size=4, num_tiles=256)),
    ('schedule-length', FIRES, schedule(10)),
    ('schedule-length', FIRES, schedule(15)),
    ('schedule-length', QUIET, schedule(12)),
    ('schedule-length', QUIET, schedule(10, stretch=True)),
    ('padded-norms', FIRES, sets(model__neck=nn.Sequential(nn.GroupNorm(2, 4)), model__bbox_head=nn.Identity())),
    ('padded-norms', FIRES, sets(model__backbone=nn.InstanceNorm2d(4))),
    ('padded-norms', FIRES, sets(model__backbone__body=nn.GroupNorm(2, 4))),  # as in a model of timm
    ('padded-norms', QUIET, sets(model__neck=LayerNorm2d(4), model__bbox_head=nn.BatchNorm2d(4))),
    ('padded-norms', QUIET, group_norm_in_the_backbone),
    ('padded-norms', QUIET, sets(model__backbone=nn.InstanceNorm2d(4), batch_size=1)),
    ('padded-detections', FIRES, exported(score=0.03)),
    ('padded-detections', FIRES, exported(pixels=1.5)),
    ('padded-detections', QUIET, exported(score=0.01)),
    ('padded-detections', QUIET, exported(pixels=0.5)),
    ('non-finite-weights', FIRES, reads(torch.tensor([0.0, torch.nan]))),
    ('non-finite-weights', QUIET, reads(torch.tensor([0.0, -torch.inf]))),  # a mask of attention
    ('non-finite-weights', QUIET, reads(torch.tensor([3e38, 3e38, -3e38]))),  # the sum overflows
    ('other-optimizer', FIRES, resumed(2, lr=0.1)),
    ('other-optimizer', FIRES, resumed(1, lr=0.1, betas=(0.9, 0.99))),
    ('other-optimizer', QUIET, resumed(1, lr=0.2, momentum=0.9)),
    ('other-optimizer', QUIET, resumed(1, lr=0.1, momentum=0.0)),
    ('checkpoint-classes', FIRES, checkpoint(**trained_with(*CLASSES[::-1]))),
    ('checkpoint-classes', FIRES, checkpoint(resume=False, split='val', **trained_with('disk'))),
    ('checkpoint-classes', QUIET, checkpoint(**trained_with(*CLASSES))),
    ('checkpoint-classes', QUIET, checkpoint(resume=False, **trained_with('cat', 'dog'))),  # with new heads
    ('checkpoint-classes', QUIET, checkpoint()),
    ('no-training-state', FIRES, lambda built: (checkpoint()(built), built.checkpoint.content.pop('optimizer'))),
    ('no-training-state', QUIET, checkpoint()),
    ('no-training-state', QUIET, lambda built: (checkpoint(False)(built), built.checkpoint.content.pop('optimizer'))),
    ('averaged-weights', FIRES, checkpoint(ema_state_dict={})),
    ('averaged-weights', QUIET, checkpoint()),
    ('averaged-weights', QUIET, checkpoint(resume=False, ema_state_dict={})),
    ('averaged-weights', QUIET, both(checkpoint(ema_state_dict={}), hooks(EMAHook()))),
    ('partial-weights', FIRES, both(checkpoint(load_from=None, state_dict=FITTING), other_backbone)),
    ('partial-weights', FIRES, both(checkpoint(load_from=None, state_dict={'a': torch.ones(1)}), other_backbone)),
    ('partial-weights', QUIET, both(checkpoint(load_from=None, state_dict=FITTING), other_backbone,
                                      sets(model__backbone__init_cfg=dict(prefix='backbone.')))),
    ('partial-weights', FIRES, both(checkpoint(load_from=None, state_dict=QUARTER), layers)),
    ('partial-weights', QUIET, both(checkpoint(load_from=None, state_dict=HALF_FITTING), layers)),
    ('partial-weights', QUIET, checkpoint(load_from=None)),  # this package's backbones check every tensor
]  # fmt: skip


@pytest.fixture(scope='module')
def recipe(demo_data, tmp_path_factory):
    return build_recipe(demo_data, tmp_path_factory.mktemp('recipe'))


@pytest.fixture
def built(recipe, tmp_path, monkeypatch):
    """A copy of the recipe, with a folder and a monkeypatch for the changes that need them."""
    copied = copy_of(recipe)
    copied.folder, copied.patch = tmp_path, monkeypatch
    return copied


def found_by(code, change, built, **more):
    """The findings of one rule after a change, which reports itself where no rule looks at what was built."""
    refused = ()
    with judging(Findings(**more)) as found:
        try:
            change(built)
        except Refusal as refusal:
            refused = refusal.findings
        judge(code, built)
    return [one for one in (*found, *refused) if one.code == code]


@pytest.mark.parametrize(('code', 'fires', 'change'), CASES, ids=[f'{code}-{fires}' for code, fires, _ in CASES])
def test_a_rule_fires_on_faults_only(built, code, fires, change):
    assert bool(found_by(code, change, built)) == fires


def test_every_rule_has_inputs_of_both_kinds():
    for code in (*(rule.code for rule in rules_about('config', 'checkpoint')), 'no-objects'):
        kinds = [fires for name, fires, _ in CASES if name == code]
        assert kinds.count(FIRES) >= 1, code
        assert kinds.count(QUIET) >= 2, code


ALLOWED = {
    rule.code: next(change for code, fires, change in CASES if code == rule.code and fires)
    for rule in rules_about('config', 'checkpoint')
    if rule.can_allow
}


@pytest.mark.parametrize('code', ALLOWED)
def test_a_rule_can_be_allowed(built, code):
    severities = [one.severity for one in found_by(code, ALLOWED[code], built, allow=[code])]
    assert set(severities) == ({'warning'} if RULES[code].severity == 'error' else set())


def test_rows_of_initial_weights_that_are_taken_by_place_are_said(built):
    """With other names: without the permission they are taken by name."""
    change = checkpoint(resume=False, **trained_with(*CLASSES[::-1]))
    (found,) = found_by('checkpoint-classes', change, built, allow=['checkpoint-classes'])
    assert found.text.endswith(f'; by their places {CLASSES[0]} has the row of {CLASSES[-1]}')


def test_the_recipe_itself_is_right(built, capsys):
    with judging(Findings()) as found:
        for phase in ('own data', 'config', 'built', 'samples'):
            verify(phase, built)
    assert [one.code for one in found] == ['random-backbone']
    assert capsys.readouterr().out.startswith('warning: the backbone is initialized at random')


def test_all_errors_of_a_phase_are_raised_together(built, capsys):
    sets(model__bbox_head__num_classes=80, model__test_cfg__score_thr=0.3)(built)
    classes('val', *CLASSES[::-1])(built)
    with judging(Findings()), pytest.raises(Refusal) as refusal:
        verify('built', built)
    assert {one.code for one in refusal.value.findings} == {'head-classes', 'class-numbers'}
    assert '[low-scores]' in capsys.readouterr().out


def test_idle_custom_keys_name_the_parameter_that_is_meant(built):
    """mmdet's Swin recipes keep 'absolute_pos_embed' from decaying, which PVT and ViT call pos_embed."""
    paramwise(custom_keys=dict(absolute_pos_embed=dict(decay_mult=0.0)))(built)
    built.model.backbone.pos_embed = torch.nn.Parameter(torch.zeros(1))
    assert [one.items for one in findings_of('idle-custom-keys', built)] == [
        ("'absolute_pos_embed' (did you mean pos_embed?)",)
    ]


def test_random_numbers_of_training_stay(built):
    samples([0] * 3 + [1])(built)
    state = random.getstate()
    findings_of('lost-objects', built)
    assert random.getstate() == state


def test_lines_name_the_place_and_what_to_set(built):
    """The only place where wordings are compared."""
    sets(model__bbox_head__num_classes=80, model__neck__in_channels=[1])(built)
    text = findings_of('head-classes', built).text()
    assert (
        'model.bbox_head.num_classes=80: the data of train has 4 classes: disk, square, triangle, star. Set num_cl'
        in text
    )


def test_datasets_of_the_user_may_have_an_order_of_their_own(built, tmp_path):
    class Other(CocoDataset):
        METAINFO = dict(classes=('dog', 'cat'))

    class Reads(Other):
        def load_data_list(self):
            """Numbers classes as METAINFO has them."""

    (tmp_path / 'a.json').write_text(json.dumps(dict(images=[], categories=[dict(name='cat'), dict(name='dog')])))
    for kind, count in ((Other, 1), (Reads, 0)):
        DATASETS.register_module(name='OfTheUser', module=kind, force=True)
        built.cfg.train_dataloader, built.splits = (
            dict(dataset=dict(type='OfTheUser', ann_file=f'{tmp_path}/a.json')),
            ('train',),
        )
        assert len(list(findings_of('class-order', built))) == count
    DATASETS.module_dict.pop('OfTheUser')


def test_a_metric_that_computes_other_values_is_not_known(built):
    built.metrics['val'] = [type('OfTheUser', (CocoMetric,), {})()]
    hooks(EarlyStoppingHook('coco/recall_of_crowds', rule='greater'))(built)
    assert not list(findings_of('unknown-metric', built))


def test_a_written_config_keeps_what_is_allowed():
    cfg = Config(dict(allow=['head-classes']))
    found = Findings()
    found.allow(cfg.get('allow') or ())
    assert 'head-classes' in found.allowed
