"""Parts that do not fit each other, or do not exist, are found before training."""

import json
import random
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmdet.utils import register_all_modules
from mmengine import Config, DefaultScope
from mmengine.registry import MODELS
from torch import nn
from torch.utils.data import ConcatDataset

from tokennorm.backbones import PVT
from tokennorm.checkpoints import Checkpoint
from tokennorm.engine.checks import (
    check_backbone,
    check_classes_of_data,
    check_config_data,
    check_feature_maps,
    check_paramwise,
    check_queries,
    check_switches,
    check_training_samples,
    describe_idle_keys,
    describe_lost_scores,
    describe_other_pixels,
)
from tokennorm.messages import UserError

ROOT = Path(__file__).resolve().parents[2]


class Detector(nn.Module):
    def __init__(self, **kwargs):
        super().__init__()
        arch = dict(
            embed_dims=(8, 16, 24), depths=(1,) * 3, num_heads=(1,) * 3, mlp_ratios=(1,) * 3, sr_ratios=(1,) * 3
        )
        self.backbone = PVT(arch, pretrain_img_size=32, **kwargs)


def test_channels_that_fit_pass():
    check_feature_maps(Detector(), dict(neck=dict(type='FPN', in_channels=[8, 16, 24])))
    check_feature_maps(
        Detector(out_indices=(1, 2)),
        dict(neck=[dict(type='FPN', in_channels=[16, 24]), dict(type='BFP', in_channels=5)]),
    )
    check_feature_maps(Detector(out_indices=(2,)), dict(neck=dict(type='SimpleFeaturePyramid', in_channels=24)))
    check_feature_maps(Detector(), dict(neck=dict(type='DilatedEncoder', in_channels=24)))  # which takes the last map
    check_feature_maps(Detector(), dict(neck=dict(type='GlobalAveragePooling')))
    check_feature_maps(Detector(), dict(neck=dict(type='FPN', in_channels=(8, 16, 24))))
    check_feature_maps(Detector(), dict(neck=dict(type='YOLOV3Neck', in_channels=[24, 16, 8])))
    check_feature_maps(Detector(), {})
    check_feature_maps(nn.Module(), dict(neck=dict(in_channels=[1])))


@pytest.mark.parametrize(
    ('in_channels', 'out_indices', 'message'),
    [
        ([8, 16, 32], None, r'model.neck: in_channels=\[8, 16, 32\], but .* PVT .*: set it to \[8, 16, 24\]'),
        ([8, 16, 24], (1, 2), r'\[16, 24\] channels: set it to \[16, 24\]'),
        (16, None, r'in_channels=16, but .*: set it to 24'),
    ],
)  # fmt: skip
def test_others_are_named(in_channels, out_indices, message):
    with pytest.raises(UserError, match=message):
        check_feature_maps(Detector(out_indices=out_indices), dict(neck=dict(type='FPN', in_channels=in_channels)))


@pytest.mark.parametrize(
    ('backbone', 'neck', 'found'),
    [
        ({}, {}, None),
        (dict(out_indices=(1, 2, 3)), dict(in_channels=[64, 128, 256]), [16, 32, 64]),
        (dict(out_indices=(1, 2, 3)), dict(in_channels=[64, 128, 256], start_level=0), None),
        ({}, dict(start_level=0, num_outs=4), [4, 8, 16, 32]),
    ],
)  # fmt: skip
def test_strides_of_anchors_are_those_of_the_maps(backbone, neck, found):
    register_all_modules(init_default_scope=False)
    cfg = Config.fromfile(ROOT / 'configs' / 'demo' / 'retinanet_pvt-mini_fpn_shapes.py').model
    cfg.backbone.update(backbone)
    cfg.neck.update(neck)
    with DefaultScope.overwrite_default_scope('mmdet'), torch.device('meta'):
        model = MODELS.build(cfg)
    if found is None:
        check_feature_maps(model, cfg)
        assert model.neck.training
        return
    message = (
        rf'model.bbox_head: its anchors have the strides \[8, 16, 32\], but .* have {re.escape(str(found))}: .*out_ind'
    )
    with pytest.raises(UserError, match=message):
        check_feature_maps(model, cfg)


def test_a_backbone_with_one_map_wants_a_pyramid():
    register_all_modules(init_default_scope=False)
    cfg = Config.fromfile(ROOT / 'configs' / 'vit' / 'mask-rcnn_vit-s_sfp_1x_coco.py').model
    cfg.backbone.update(arch='tiny', init_cfg=None, pretrain_img_size=32, rel_pos=None)
    cfg.neck.in_channels = 192
    with DefaultScope.overwrite_default_scope('mmdet'), torch.device('meta'):
        check_feature_maps(MODELS.build(cfg), cfg)
        cfg.neck = dict(type='FPN', in_channels=[192], out_channels=256, num_outs=5)
        with pytest.raises(
            UserError, match=r'model.rpn_head: .* have \[16, 32, 64, 128, 256\]: .*SimpleFeaturePyramid'
        ):
            check_feature_maps(MODELS.build(cfg), cfg)


class Samples:
    """A dataset of images with two objects each, of which its pipeline keeps some."""

    pipeline = ()

    def __init__(self, kept, objects=2):
        self.kept, self.objects = kept, objects

    def __len__(self):
        return len(self.kept)

    def get_data_info(self, index):
        return dict(instances=[dict(ignore_flag=0)] * self.objects + [dict(ignore_flag=1)])

    def __getitem__(self, index):
        random.random()
        return dict(data_samples=SimpleNamespace(gt_instances=[0] * self.kept[index]))


@pytest.mark.parametrize(
    ('kept', 'objects', 'fits'),
    [
        ([0] * 12, 2, False),
        ([0] * 11 + [1], 2, True),
        ([0] * 12, 0, False),  # nothing is annotated
        ([0] * 40 + [1], 2, False),  # the first 16 show it
    ],
)
@pytest.mark.parametrize('wrapped', [False, True])
def test_a_pipeline_that_loses_all_objects_is_refused(kept, objects, fits, wrapped):
    dataset = Samples(kept, objects)
    if wrapped:
        dataset.dataset = inner = Samples(kept, objects)
        assert inner
    state = random.getstate()
    with nullcontext() if fits else pytest.raises(UserError, match=r'no object in \d+ samples|image has an object'):
        check_training_samples(dataset)
    assert random.getstate() == state


@pytest.mark.parametrize('objects', [0, 1])
def test_objects_may_be_in_the_second_file_only(objects):
    both = ConcatDataset([Samples([0] * 3, 0), Samples([1] * 3, objects)])
    with nullcontext() if objects else pytest.raises(UserError, match='no training image has an object'):
        check_training_samples(both)


def test_one_crop_of_the_only_image_of_a_file_may_lose_its_objects():
    class Crops(Samples):
        def __getitem__(self, index):
            objects = random.random() < 0.5
            return dict(data_samples=SimpleNamespace(gt_instances=[0] * objects))

    for seed in range(8):
        random.seed(seed)
        check_training_samples(ConcatDataset([Samples([1] * 3, 1), Crops([0], 1)]))


@pytest.mark.parametrize('first', [0, 2])
def test_a_pipeline_of_the_second_file_that_loses_all_objects_is_refused(first):
    both = ConcatDataset([Samples([1] * 3, first), Samples([0] * 3, 2)])
    with pytest.raises(UserError, match='leaves no object in 16 samples'):
        check_training_samples(both)


@pytest.mark.parametrize(
    ('size', 'queries', 'least'), [(96, 900, 416), (800, 900, None), (96, 50, None), (800, 100, None)]
)
def test_a_detr_needs_as_many_positions_as_queries(size, queries, least):
    """Two-stage models pick their queries on the encoder's maps; half of the test size is the smallest in training."""
    steps = [dict(type='RandomChoiceResize', scales=[(size // 2, 4 * size), (size, 4 * size)])]
    test = [dict(type='Resize', scale=(4 * size, size))]
    cfg = Config(
        dict(
            model=dict(num_queries=queries, as_two_stage=True),
            train_dataloader=dict(dataset=dict(pipeline=steps)),
            test_dataloader=dict(dataset=dict(pipeline=test)),
        )
    )
    cfg.model.update(bbox_head=dict(num_classes=4, loss_cls=dict(use_sigmoid=True)), test_cfg=dict(max_per_img=300))
    with pytest.raises(UserError, match=f'--image-size {least} or more') if least else nullcontext():
        check_queries(cfg)
    assert cfg.model.test_cfg.max_per_img == min(300, 4 * queries)


def test_weights_of_another_backbone_are_refused():
    own = nn.Linear(2, 3)
    fitting = Checkpoint(
        'a.pth', dict(state_dict={'backbone.weight': torch.ones(3, 2), 'backbone.bias': torch.ones(3)})
    )
    check_backbone(own, dict(prefix='backbone.'), fitting)
    with pytest.raises(UserError, match=r'a.pth has 0 of the 2 tensors of Linear; .*backbone.weight'):
        check_backbone(own, {}, fitting)


@pytest.mark.parametrize('form', [dict, list, 'Evaluator'])
@pytest.mark.parametrize(('other', 'fits'), [('copy', True), ('train', False), (None, True)])
def test_evaluators_read_the_annotations_of_their_loader(tmp_path, other, fits, form):
    def write(name, file):
        content = dict(images=[dict(id=1, file_name=file)], annotations=[], categories=[dict(id=1, name='a')])
        (tmp_path / f'{name}.json').write_text(json.dumps(content))

    for name, file in dict(val='1.jpg', copy='1.jpg', train='2.jpg').items():
        write(name, file)
    dataset = dict(type='CocoDataset', data_root=str(tmp_path), ann_file='val.json', metainfo=dict(classes=('a',)))
    evaluator = dict(type='CocoMetric') | (dict(ann_file=str(tmp_path / f'{other}.json')) if other else {})
    evaluator = (
        evaluator if form is dict else [evaluator] if form is list else dict(type='Evaluator', metrics=[evaluator])
    )
    cfg = dict(model={}, val_dataloader=dict(dataset=dataset), val_evaluator=evaluator)
    with nullcontext() if fits else pytest.raises(UserError, match=r'has other images than .*val\.json'):
        check_config_data(cfg, ('val',))


IMAGENET = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True)
CAFFE = dict(mean=[103.53, 116.28, 123.675], std=[1.0, 1.0, 1.0], bgr_to_rgb=False)
HALF = dict(mean=[127.0] * 3, std=[128.0] * 3, bgr_to_rgb=True)


@pytest.mark.parametrize(
    ('name', 'weights', 'given', 'fits'),
    [
        ('vit_tiny_patch16_224', 'vit.pth', IMAGENET, False),
        ('vit_tiny_patch16_224', 'vit.pth', HALF, True),
        ('vit_tiny_patch16_224', None, IMAGENET, True),
        ('vit_base_patch16_224', 'timm/vit_base_patch16_224.mae', IMAGENET, True),
        ('vit_small_patch16_dinov3', 'timm/vit_small_patch16_dinov3.lvd1689m', IMAGENET, True),
        ('vit_base_patch16_clip_224', 'timm/vit_base_patch16_clip_224.openai', IMAGENET, False),  # std is 10 off
        ('resnet18', 'resnet.pth', CAFFE, False),
        ('resnet18', 'resnet.pth', {}, False),
        ('timm/resnet18', 'resnet.pth', dict(IMAGENET, bgr_to_rgb=False), False),
    ],
)
def test_pixels_are_those_of_the_weights(name, weights, given, fits):
    backbone = dict(type='tokennorm.TimmBackbone', model_name=name, init_cfg=weights and dict(checkpoint=weights))
    cfg = dict(model=dict(backbone=backbone, data_preprocessor=given))
    lines = describe_other_pixels(cfg)
    assert len(lines) == (not fits)
    assert fits or 'are for RGB pixels of mean=[' in lines[0]
    assert name != 'resnet18' or 'mean=[123.67, 116.28, 103.53] and std=[58.4, 57.12, 57.38]' in lines[0]
    assert not describe_other_pixels(dict(cfg, load_from='detector.pth'))


@pytest.mark.parametrize(
    ('kind', 'weights', 'given', 'fits'),
    [
        ('Swin', 'swin_tiny.pth', IMAGENET, True),
        ('Swin', 'swin_tiny.pth', dict(IMAGENET, bgr_to_rgb=False), False),  # RTMDet
        ('PVTv2', 'pvt_v2_b1.pth', {}, False),  # YOLOX
        ('ViT', 'deit_tiny_patch16_224.pth', CAFFE, False),
        ('ViT', 'timm/vit_tiny_patch16_224.augreg_in21k', IMAGENET, False),
        ('ViT', 'mine.pth', HALF, True),
    ],
)
def test_pixels_are_those_of_published_weights(kind, weights, given, fits):
    backbone = dict(type=f'tokennorm.{kind}', init_cfg=dict(type='Pretrained', checkpoint=weights))
    lines = describe_other_pixels(dict(model=dict(backbone=backbone, data_preprocessor=given)))
    assert len(lines) == (not fits)
    assert fits or f'unless {weights} has other weights' in lines[0]


def test_scores_that_ap_does_not_see_are_named():
    model = dict(test_cfg=dict(rpn=dict(nms_pre=1000), rcnn=dict(score_thr=0.05)))
    cfg = dict(model=model, val_evaluator=dict(type='tokennorm.CocoMetric'))
    assert describe_lost_scores(cfg) == []
    model['test_cfg']['rcnn']['score_thr'] = 0.3
    said = 'detections below model.test_cfg.rcnn.score_thr=0.3 are dropped, which makes AP too low'
    assert describe_lost_scores(cfg) == [said]
    assert describe_lost_scores(cfg | dict(val_evaluator=dict(type='CocoPanopticMetric'))) == []


def test_other_backbones_may_have_a_list_of_initializations():
    backbone = dict(type='mmpretrain.SwinTransformer', init_cfg=[dict(type='TruncNormal', layer='Linear', std=0.02)])
    assert not describe_other_pixels(dict(model=dict(backbone=backbone)))


@pytest.mark.parametrize(
    ('constructor', 'rules', 'unknown'),
    [
        (None, dict(norm_decay_mult=0.0, custom_keys=dict(backbone=dict(lr_mult=0.1, decay_mult=1.0))), None),
        (None, dict(custom_keys=dict(norm=dict(betas=(0.9, 0.99), weight_decay=0.0))), None),
        (None, dict(norm_decay_mul=0.0), r'paramwise_cfg: norm_decay_mul is not .*did you mean norm_decay_mult'),
        (None, dict(decay_rate=0.7), 'paramwise_cfg: decay_rate is not .*needs that constructor'),
        (None, dict(custom_keys=dict(backbone=dict(lr_mul=0.1))), r'custom_keys\.backbone: lr_mul is not .*lr_mult'),
        ('tokennorm.LayerDecayOptimWrapperConstructor', dict(decay_rate=0.7, backbone_lr_mult=0.1), None),
        ('tokennorm.LayerDecayOptimWrapperConstructor', dict(decay_rate=0.7, num_layers=12), 'num_layers is not'),
        ('LearningRateDecayOptimizerConstructor', dict(decay_type='layer_wise'), None),  # knows its own
        ('LayerDecayOptimWrapperConstructor', dict(num_layers=12, layer_decay_rate=0.7), None),  # MMPose's
    ],
)
def test_rules_for_parameters_that_nothing_reads_are_named(constructor, rules, unknown):
    optimizer = dict(type='AdamW', lr=1e-4)
    cfg = dict(optim_wrapper=dict(constructor=constructor, optimizer=optimizer, paramwise_cfg=rules))
    with pytest.raises(UserError, match=unknown) if unknown else nullcontext():
        check_paramwise(cfg)


@pytest.mark.parametrize(
    ('keys', 'idle'),
    [
        (('.mean_logit', 'backbone', 'stages.0'), []),
        (('.depthwise', 'absolute_pos_embed', '.var_logit'), ["'.depthwise', 'absolute_pos_embed'"]),
    ],
)
@pytest.mark.parametrize('constructor', [None, 'LearningRateDecayOptimizerConstructor'])
def test_rules_for_parameters_that_the_model_lacks_are_named(constructor, keys, idle):
    model = Detector(token_norm_cfg=dict(type='DTN'))
    rules = dict(custom_keys={key: dict(lr_mult=20.0) for key in keys})
    texts = describe_idle_keys(dict(optim_wrapper=dict(constructor=constructor, paramwise_cfg=rules)), model)
    assert [re.findall(r'has (.*) in its name', text)[0] for text in texts] == ([] if constructor else idle)


def with_classes(*classes, **meta):
    return SimpleNamespace(metainfo=dict(classes=classes, **meta))


@pytest.mark.parametrize(
    ('train', 'val', 'message'),
    [
        (with_classes('a', 'b'), with_classes('a', 'b', palette=[(0, 0, 0)] * 2), None),
        (with_classes('a', 'b'), with_classes('b', 'a'), 'the data of val numbers the class b otherwise'),
        (with_classes('a', 'b', 'c'), with_classes('a', 'c'), 'the data of val numbers the class c otherwise'),
        (with_classes('a', 'b', palette=[(0, 0, 0)]), with_classes('a', 'b'), 'train has 1 colors for 2 classes'),
        (SimpleNamespace(metainfo=[dict(classes=('a', 'b')), dict(classes=('b',))]), with_classes(), 'the class b'),
        (with_classes(*'abcd'), with_classes(), r'num_classes=3, but the data of train has 4 classes: a, b, c, d'),
    ],
)
def test_classes_of_all_data_are_numbered_equally(train, val, message):
    model = dict(type='ImageClassifier', head=dict(num_classes=3))
    with pytest.raises(UserError, match=message) if message else nullcontext():
        check_classes_of_data(model, dict(train=train, val=val))


def test_a_language_model_finds_classes_by_name_and_needs_colors():
    one, other = with_classes('a', 'b', palette=[(0, 0, 0)] * 2), with_classes('b', 'a')
    check_classes_of_data(dict(language_model={}), dict(train=one, val=other))
    with pytest.raises(UserError, match='val has 1 colors for 2 classes'):
        check_classes_of_data(dict(language_model={}), dict(train=one, val=with_classes('b', 'a', palette=[(0, 0, 0)])))


@pytest.mark.parametrize(
    ('hook', 'outer', 'fits'),
    [
        ('mmdet.PipelineSwitchHook', 'CocoDataset', True),
        ('PipelineSwitchHook', 'RepeatDataset', False),
        ('YOLOXModeSwitchHook', 'MultiImageMixDataset', True),
        ('YOLOXModeSwitchHook', 'RepeatDataset', False),
    ],
)
def test_hooks_that_switch_the_pipeline_find_it(hook, outer, fits):
    cfg = dict(custom_hooks=[dict(type=hook)], train_dataloader=dict(dataset=dict(type=outer)))
    with nullcontext() if fits else pytest.raises(UserError, match=f'{hook[:8]}.* would change nothing'):
        check_switches(cfg)


def test_layer_decay_of_mmdet_does_not_know_these_backbones():
    wrapper = dict(constructor='mmdet.LearningRateDecayOptimizerConstructor', optimizer=dict(type='AdamW'))
    cfg = dict(optim_wrapper=wrapper, model=dict(backbone=dict(type='tokennorm.PVT')))
    with pytest.raises(UserError, match=r'use tokennorm.LayerDecayOptimWrapperConstructor'):
        check_paramwise(cfg)
    cfg['model']['backbone']['type'] = 'ConvNeXt'
    check_paramwise(cfg)


def test_mask2former_keeps_as_many_masks_as_it_has():
    head = dict(num_queries=20, num_things_classes=2, num_stuff_classes=0)
    cfg = dict(model=dict(panoptic_head=head, test_cfg=dict(max_per_image=100)))
    check_queries(cfg)
    assert cfg['model']['test_cfg']['max_per_image'] == 40


def test_optimizers_of_other_packages_read_keys_of_their_own():
    rule = dict(decay_mult=0.0, lars_exclude=True)  # as in mmpretrain's configs of BYOL and SimCLR
    wrapper = dict(optimizer=dict(type='LARS', lr=4.8), paramwise_cfg=dict(custom_keys=dict(bn=rule)))
    check_paramwise(dict(optim_wrapper=wrapper))


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
