"""Recipes without `--data` and `--epochs`: `tokennorm train` builds what mmdet's tools/train.py builds.

What it adds is listed in docs/guides/migrate.md.
"""

import json
import re
from itertools import islice
from pathlib import Path

import cv2
import mmengine.runner
import numpy as np
import pytest
from mmdet.datasets import CocoDataset
from mmengine.config import Config
from mmengine.hooks import ParamSchedulerHook
from mmengine.runner import EpochBasedTrainLoop, get_priority

from tests.helpers.cases import fast_first
from tokennorm.engine.runner import build_runner
from tokennorm.engine.training import SPLITS, plan_training
from tokennorm.findings import Findings, judging
from tokennorm.plan.options import TrainOptions
from tokennorm.plan.schedule import fit_to_training

LIST = (Path(__file__).resolve().parents[2] / 'docs/guides/migrate.md').read_text()
ADDED = [
    'CPUSpeedHook',
    'DataErrorHook',
    'NonFiniteHook',
    'ProgressHook',
    'ReportHook',
    'SummaryHook',
    'TrainBatchesHook',
]
BEST = ('save_best', 'rule', 'key_indicators', 'rules', 'best_ckpt_path', 'is_better_than')
IMAGES = 128
OTHER = '(an object)'

# Published recipes of mmdet, by family. ATSS, TOOD, VFNet and PAA train as FCOS, conditional DETR as DETR.
PUBLISHED = [
    'retinanet/retinanet_r18_fpn_1x_coco',
    'yolox/yolox_tiny_8xb8-300e_coco',
    'rtmdet/rtmdet_tiny_8xb32-300e_coco',
    'retinanet/retinanet_r50_fpn_90k_coco',
    'retinanet/retinanet_r50-caffe_fpn_ms-3x_coco',
    'faster_rcnn/faster-rcnn_r50_fpn_1x_coco',
    'faster_rcnn/faster-rcnn_r50-caffe_fpn_ms-90k_coco',
    'mask_rcnn/mask-rcnn_r50_fpn_1x_coco',
    'mask_rcnn/mask-rcnn_r50_fpn_ms-poly-3x_coco',
    'swin/mask-rcnn_swin-t-p4-w7_fpn_ms-crop-3x_coco',
    'solo/decoupled-solo_r50_fpn_1x_coco',
    'cascade_rcnn/cascade-mask-rcnn_r50_fpn_20e_coco',
    'fcos/fcos_r50-caffe_fpn_gn-head_1x_coco',
    'gfl/gfl_r50_fpn_ms-2x_coco',
    'yolo/yolov3_mobilenetv2_8xb24-320-300e_coco',
    'yolof/yolof_r50-c5_8xb8-1x_coco',
    'ssd/ssd300_coco',
    'ssd/ssdlite_mobilenetv2-scratch_8xb24-600e_coco',
    'centernet/centernet_r18_8xb16-crop512-140e_coco',
    'rtmdet/rtmdet-ins_tiny_8xb32-300e_coco',
    'detr/detr_r50_8xb2-150e_coco',
    'deformable_detr/deformable-detr_r50_16xb2-50e_coco',
    'dino/dino-4scale_r50_8xb2-12e_coco',
    'sparse_rcnn/sparse-rcnn_r50_fpn_ms-480-800-3x_coco',
    'queryinst/queryinst_r50_fpn_1x_coco',
    'solo/solo_r50_fpn_3x_coco',
    'solov2/solov2_r50_fpn_1x_coco',
    'mask2former/mask2former_r50_8xb2-lsj-50e_coco',
    'pvt/retinanet_pvt-t_fpn_1x_coco',
    'condinst/condinst_r50_fpn_ms-poly-90k_coco_instance',
    'yolact/yolact_r50_1xb8-55e_coco',
]

# What users change in RetinaNet: schedules that end elsewhere than training, warm-ups, checkpoints, hooks, loops.
WARM_UP = "dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=500)"
CHANGED = {
    'cosine ends early': (
        f'param_scheduler = [{WARM_UP}, dict(type="CosineAnnealingLR", T_max=10, end=10, eta_min=1e-5)]'
    ),
    'cosine is cut': 'param_scheduler = [dict(type="CosineAnnealingLR", T_max=24, end=24, eta_min=0)]',
    'steps after the end': (
        'param_scheduler = [dict(type="MultiStepLR", milestones=[8, 11])]\ntrain_cfg = dict(max_epochs=4)'
    ),
    'plateau': (
        'param_scheduler = [dict(type="ReduceOnPlateauLR", monitor="coco/bbox_mAP", begin=2, end=9, patience=1)]'
    ),
    'one cycle': 'param_scheduler = [dict(type="OneCycleLR", eta_max=0.02, total_steps=768, by_epoch=False)]',
    'flat then cosine': (
        'param_scheduler = [dict(type="ConstantLR", factor=1, begin=0, end=6), '
        'dict(type="CosineAnnealingLR", begin=6, end=12, T_max=6, convert_to_iter_based=True)]'
    ),
    'momentum': (
        f'param_scheduler = [{WARM_UP}, dict(type="LinearMomentum", start_factor=0.9, by_epoch=False, end=300)]'
    ),
    'warm-up over epochs': (
        'param_scheduler = [dict(type="LinearLR", start_factor=0.1, begin=0, end=3, convert_to_iter_based=True), '
        'dict(type="MultiStepLR", begin=3, end=12, milestones=[9], gamma=0.5)]'
    ),
    'two checkpoint hooks': (
        'default_hooks = dict(checkpoint=dict(interval=1, save_best="coco/bbox_mAP_50"))\n'
        'custom_hooks = [dict(type="CheckpointHook", by_epoch=False, interval=50, out_dir="snapshots")]'
    ),
    'checkpoints': 'default_hooks = dict(checkpoint=dict(interval=3, max_keep_ckpts=5, save_last=False))',
    'own hooks': (
        'custom_hooks = [dict(type="EMAHook", momentum=1e-3), dict(type="NumClassCheckHook"), '
        'dict(type="EarlyStoppingHook", monitor="coco/bbox_mAP", patience=4)]'
    ),
    'layer decay': (
        'optim_wrapper = dict(_delete_=True, type="OptimWrapper", accumulative_counts=4, clip_grad=dict(max_norm=1.0), '
        'optimizer=dict(type="AdamW", lr=2e-4, weight_decay=0.1, betas=(0.9, 0.95)), paramwise_cfg=dict('
        'custom_keys={"backbone": dict(lr_mult=0.1)}, norm_decay_mult=0.0, bias_lr_mult=2.0))'
    ),
    'iterations': (
        'train_cfg = dict(_delete_=True, type="IterBasedTrainLoop", max_iters=700, val_interval=350, '
        'dynamic_intervals=[(600, 20)])\nparam_scheduler = [dict(type="PolyLR", power=0.9, by_epoch=False, end=600)]'
    ),
    'dynamic intervals': 'train_cfg = dict(val_begin=3, val_interval=4, dynamic_intervals=[(10, 1)])',
    'no validation': 'val_cfg = val_dataloader = val_evaluator = None',
    'auto_scale_lr': 'auto_scale_lr = dict(enable=True, base_batch_size=16)',
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """data/coco as mmdet's recipes name it: few images under many ids, so that an epoch has the length of one."""
    folder = tmp_path_factory.mktemp('recipes')
    root = folder / 'data' / 'coco'
    (root / 'annotations').mkdir(parents=True)
    categories = [dict(id=i, name=name) for i, name in enumerate(CocoDataset.METAINFO['classes'], 1)]
    for split, count in (('train2017', IMAGES), ('val2017', 4)):
        (root / split).mkdir()
        for i in range(4):
            noise = np.random.default_rng(i).integers(0, 255, (64, 96, 3), np.uint8)
            assert cv2.imwrite(str(root / split / f'{i}.jpg'), noise)
        images = [dict(id=i, file_name=f'{i % 4}.jpg', width=96, height=64) for i in range(count)]
        polygon = [10, 10, 50, 10, 50, 40, 10, 40]
        common = dict(bbox=[10, 10, 40, 30], area=1200, iscrowd=0, segmentation=[polygon])
        annotations = [dict(common, id=i + 1, image_id=i, category_id=1 + i % 80) for i in range(count)]
        content = dict(images=images, annotations=annotations, categories=categories)
        (root / 'annotations' / f'instances_{split}.json').write_text(json.dumps(content))
    return folder


def own_config(folder, name, text):
    config = folder / f'{re.sub("[ /]", "-", name)}.py'
    config.write_text(text)
    return config


def compare(config):
    """Builds a config by mmdet's way and by the command, and compares what would train. Returns it."""
    cfg = Config.fromfile(config)  # as mmdet's tools/train.py does (3.3)
    cfg.work_dir, cfg.launcher = f'{config.stem}-mmdet', 'none'
    theirs = built(mmengine.runner.Runner.from_cfg(cfg))
    options = TrainOptions(str(config), out=f'{config.stem}-tokennorm')
    with judging(Findings()):
        plan, weights = plan_training(options)
        runner = build_runner(plan.cfg, SPLITS, weights.checkpoint)
        fit_to_training(runner, plan, options)
    ours = built(runner)
    hooks = [hook for hook in ours['hooks'] if hook[0] not in ADDED or hook in theirs['hooks']]
    added = [name for name, *_ in ours['hooks'] if name in ADDED]
    best = {}
    for (kind, _, mine), (_, _, others) in zip(hooks, theirs['hooks'], strict=True):
        if kind == 'CheckpointHook' and others['save_best'] is None and not best:  # the best checkpoint, which is added
            best = {key: mine.pop(key, None) for key in BEST}
            others.update(dict.fromkeys(BEST)), mine.update(dict.fromkeys(BEST))
        for key in mine.keys() - others.keys():  # subclasses know more
            del mine[key]
    ours['hooks'] = hooks
    different = {key: sorted(difference(key, ours[key], theirs[key])) for key in theirs if ours[key] != theirs[key]}
    assert not different
    return ours | dict(best=best.get('save_best'), added=added)


def built(runner):
    """What trains: loop, batches, data, model, optimizer, the settings of each iteration, hooks."""
    loop = runner._train_loop = runner.train_loop  # private in mmengine 0.10.12; `Runner.train` does this in this order
    wrapper = runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    runner.scale_lr(wrapper, runner.auto_scale_lr)
    groups = [
        {
            **{key: value for key, value in group.items() if key != 'params'},
            'sizes': [p.numel() for p in group['params']],
        }
        for group in wrapper.optimizer.param_groups
    ]
    cfg, batches = runner.cfg, loop.dataloader.batch_sampler
    hooks = sorted(runner.hooks, key=lambda hook: (get_priority(priority_of(hook)), type(hook).__name__))
    return dict(
        loop=(type(loop).__name__, values_of(loop)),
        batches=(len(loop.dataloader), values_of(batches.sampler), list(islice(batches, len(loop.dataloader)))),
        data=[plain(cfg[f'{split}_dataloader'].dataset) for split in SPLITS if cfg.get(f'{split}_dataloader')],
        model=plain(cfg.model),
        trained=[name for name, parameter in runner.model.named_parameters() if parameter.requires_grad],
        wrapper=(type(wrapper).__name__, values_of(wrapper)),
        optimizer=(type(wrapper.optimizer).__name__, groups),
        steps=steps(runner, loop, wrapper.optimizer),
        hooks=[(type(hook).__name__, priority_of(hook), values_of(hook)) for hook in hooks],
    )


def steps(runner, loop, optimizer):
    """Rate, momentum and betas of each iteration, in one group of parameters of each initial rate."""
    optimizer.param_groups[:] = {
        (group['lr'], group['weight_decay']): group for group in optimizer.param_groups
    }.values()
    runner.param_schedulers = runner.build_param_scheduler(runner.param_schedulers)
    (hook,) = [hook for hook in runner.hooks if isinstance(hook, ParamSchedulerHook)]
    length, by_epoch, done = len(loop.dataloader), isinstance(loop, EpochBasedTrainLoop), []
    for i in range(1, loop.max_iters + 1):
        done.append([(group['lr'], group.get('momentum'), group.get('betas')) for group in optimizer.param_groups])
        hook.after_train_iter(runner, i - 1)
        if by_epoch and i % length == 0:
            hook.after_train_epoch(runner)
            hook.after_val_epoch(runner, {'coco/bbox_mAP': 0.3})
    return done


def priority_of(hook):
    """Early stopping counts before the checkpoint is written, so that it can be resumed; it stops at the same epoch."""
    return 'LOWEST' if type(hook).__name__ == 'EarlyStoppingHook' else hook.priority


def difference(path, ours, theirs):
    """The places where two nested values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours.keys() | theirs.keys():
            yield from difference(f'{path}.{key}', ours.get(key), theirs.get(key))
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from difference(f'{path}.{i}', *pair)
    elif ours != theirs:
        yield f'{path}: {ours}, not {theirs}'


def values_of(thing):
    return {key: value for key, value in plain(vars(thing)).items() if value is not OTHER}


def plain(value):
    """Numbers, texts, lists and dictionaries, by which two things are compared; the rest is `OTHER`."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value if isinstance(value, int | float | str | None) else OTHER


@pytest.mark.parametrize('name', fast_first(PUBLISHED, 'yolox/yolox_tiny_8xb8-300e_coco'))
def test_a_published_recipe_is_built_as_mmdet_builds_it(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = compare(own_config(folder, name, f"_base_ = ['mmdet::{name}.py']\nrandomness = dict(seed=1)\n"))
    assert sorted(result['added']) == ADDED
    assert result['best'] in (['coco/bbox_mAP'], ['coco/segm_mAP'])


@pytest.mark.parametrize('name', fast_first(CHANGED, 'iterations', 'two checkpoint hooks'))
def test_a_changed_recipe_is_built_as_mmdet_builds_it(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    thin = 'model = dict(bbox_head=dict(feat_channels=8))'  # for time: nothing here changes the model
    text = f"_base_ = ['mmdet::{PUBLISHED[0]}.py']\nrandomness = dict(seed=1)\n{thin}\n{CHANGED[name]}\n"
    result = compare(own_config(folder, name, text))
    assert sorted(result['added']) == [hook for hook in ADDED if name != 'no validation' or hook != 'ReportHook']


def test_the_docs_list_what_is_added():
    for name in [*ADDED, 'save_best', 'CocoMetric', 'ResumableBatchSampler']:
        assert name in LIST, name
    assert f'{len(PUBLISHED)} published recipes and {len(CHANGED)} changed ones' in LIST
