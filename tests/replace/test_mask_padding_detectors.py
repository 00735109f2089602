"""The table of mmdet's detectors in docs/concepts/padding.md: what is the same alone and in a padded batch."""

import copy
import random
import re
import warnings
from pathlib import Path

import mmdet
import numpy as np
import pytest
import torch
from mmdet.registry import MODELS
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.config import Config
from mmengine.logging import MessageHub
from mmengine.registry import init_default_scope
from mmengine.structures import InstanceData, PixelData
from scipy.optimize import linear_sum_assignment
from torch import nn

from tests.helpers.cases import fast_first, slow
from tokennorm import mask_padding
from tokennorm.config.tree import walk
from tokennorm.images.padding import note_image_sizes
from tokennorm.replace.mask_padding import TESTED

CONFIGS = Path(mmdet.__file__).parent / '.mim' / 'configs'
PAGE = Path(__file__).parents[2] / 'docs' / 'concepts' / 'padding.md'
WIDTHS = {256: 16, 512: 32, 1024: 64, 2048: 128}  # of ResNet-50, and those of the small ResNet-18
EXACT = dict(losses=1e-4, scores=1e-4, boxes=0.05, masks=1e-3)  # relative; chances; pixels; share of the pixels
MASKS = {'MaskRCNN', 'HTC', 'SCNet', 'Mask2Former', 'SOLOv2', 'CondInst', 'RTMDet-Ins'}
ALL = {'losses', 'scores', 'boxes'}
DENSE_MASKS = {'scores', 'boxes', 'masks'}  # whose loss is an average over the padding, too
FAST = {'RTMDet', 'TOOD', 'YOLOX', 'CenterNet', 'DETR'}
CLASSES = {'HTC': 'HybridTaskCascade', 'RTMDet-Ins': 'RTMDet'}  # of rows with another name
ROWS = {  # config, and what is exact
    'RetinaNet': ('retinanet/retinanet_r50_fpn_1x_coco', ALL),
    'FCOS': ('fcos/fcos_r50-caffe_fpn_gn-head_1x_coco', ALL),
    'ATSS': ('atss/atss_r50_fpn_1x_coco', ALL),
    'TOOD': ('tood/tood_r50_fpn_1x_coco', set()),
    'GFL': ('gfl/gfl_r50_fpn_1x_coco', ALL),
    'RTMDet': ('rtmdet/rtmdet_tiny_8xb32-300e_coco', ALL),
    'YOLOX': ('yolox/yolox_tiny_8xb8-300e_coco', ALL),
    'SingleStageDetector': ('ssd/ssd300_coco', set()),
    'CenterNet': ('centernet/centernet_r18-dcnv2_8xb16-crop512-140e_coco', ALL),
    'FasterRCNN': ('faster_rcnn/faster-rcnn_r50_fpn_1x_coco', ALL),
    'MaskRCNN': ('mask_rcnn/mask-rcnn_r50_fpn_1x_coco', ALL | {'masks'}),
    'CascadeRCNN': ('cascade_rcnn/cascade-rcnn_r50_fpn_1x_coco', ALL),
    'HTC': ('htc/htc_r50_fpn_1x_coco', set()),
    'SCNet': ('scnet/scnet_r50_fpn_1x_coco', set()),
    'DETR': ('detr/detr_r50_8xb2-150e_coco', ALL),
    'DeformableDETR': ('deformable_detr/deformable-detr_r50_16xb2-50e_coco', ALL),
    'DINO': ('dino/dino-4scale_r50_8xb2-12e_coco', {'boxes'}),
    'Mask2Former': ('mask2former/mask2former_r50_8xb2-lsj-50e_coco', set()),
    'RTMDet-Ins': ('rtmdet/rtmdet-ins_tiny_8xb32-300e_coco', DENSE_MASKS),
    'SOLOv2': ('solov2/solov2_r50_fpn_1x_coco', {'boxes'}),  # which are all 0: it has masks only
    'CondInst': ('condinst/condinst_r50_fpn_ms-poly-90k_coco_instance', DENSE_MASKS),
}


def small(name, backbone=None):
    """The config of a row with a small ResNet-18 or a `backbone`, LN2d in place of GroupNorm, and no checkpoint."""
    model = Config.fromfile(CONFIGS / f'{ROWS[name][0]}.py').model
    kept = {key: model.data_preprocessor[key] for key in ('mean', 'std') if key in model.data_preprocessor}
    model.data_preprocessor = dict(
        type='tokennorm.DetDataPreprocessor', pad_size_divisor=32, pad_mask=True, pad_seg=True, **kept
    )
    if model.backbone.type == 'ResNet' and model.backbone.depth == 50:
        model.backbone.update(depth=18, base_channels=16, stem_channels=16)
        for part in (model.get('neck'), model.get('panoptic_head')):
            if part and isinstance(part.in_channels, list):
                part.in_channels = [WIDTHS[width] for width in part.in_channels]
    if name in ('FCOS', 'ATSS', 'TOOD', 'GFL', 'CondInst'):  # GroupNorm is their default
        model.bbox_head.norm_cfg = dict(type='GN')
    if name == 'DINO':  # it takes the best of fewer tokens than in a large image
        model.num_queries = 20
    for _, part in walk(model, 'model'):
        if part.get('type') == 'GN':
            part.clear()
            part['type'] = 'tokennorm.LN2d'
        elif part.get('type') == 'SyncBN':
            part['type'] = 'BN'
        elif 'score_thr' in part:
            part['score_thr'] = 1e-6 if part is model.test_cfg else 0.02
        if (part.get('init_cfg') or {}).get('type') == 'Pretrained':
            part['init_cfg'] = None
    if backbone is not None:
        part = model.get('neck') or model.panoptic_head
        stages = (1, 2, 3) if len(part.in_channels) == 3 else (0, 1, 2, 3)
        model.backbone = dict(backbone, out_indices=stages)
        part.in_channels = [backbone['arch']['embed_dims'][stage] for stage in stages]
        if name == 'RTMDet':
            model.bbox_head.exp_on_reg = True  # as in RTMDet-l: random weights give no sides below 0
    return model


def detector(name, backbone=None):
    init_default_scope('mmdet')
    MessageHub.get_current_instance().update_info('epoch', 0)  # TOOD asks for it
    torch.manual_seed(0)
    model = MODELS.build(small(name, backbone))
    model.init_weights()
    for key, parameter in model.named_parameters():
        with torch.no_grad():
            if parameter.ndim == 1:
                parameter.add_(0.05 * torch.randn_like(parameter))
            elif 'cls' in key.rpartition('.')[0].rpartition('.')[2]:
                parameter.mul_(5)
            elif 'offset' in key or 'layer_attention' in key:  # nearly 0 at first
                parameter.normal_(std=0.1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return mask_padding(model)


def sample(size, has_masks, seed):
    """A random image and its objects."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(0, 256, (3, *size), generator=generator).float()
    sides = torch.tensor([size[1], size[0]] * 2, dtype=torch.float)
    corners = torch.rand(4, 2, generator=generator) * sides[:2] / 2
    ends = torch.minimum(corners + 24 + torch.rand(4, 2, generator=generator) * sides[:2] * 0.6, sides[:2])
    corners[0], ends[0] = 0, sides[:2]  # the whole image
    objects = InstanceData(bboxes=torch.cat([corners, ends], 1), labels=torch.randint(0, 80, (4,), generator=generator))
    masks, semantic = np.zeros((4, *size), np.uint8), torch.zeros(1, *size, dtype=torch.long)
    for mask, label, (left, top, right, bottom) in zip(masks, objects.labels, objects.bboxes.int(), strict=True):
        mask[top:bottom, left:right] = 1
        semantic[0, top:bottom, left:right] = label
    if has_masks:
        objects.masks = BitmapMasks(masks, *size)
    meta = dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0), img_id=0, border=np.zeros(4))
    return image, DetDataSample(gt_instances=objects, gt_sem_seg=PixelData(sem_seg=semantic), metainfo=meta)


def first_of(model, samples, training):
    """The first of these images as in a batch with the others."""
    images, objects = zip(*copy.deepcopy(samples), strict=True)
    data = model.data_preprocessor(dict(inputs=list(images), data_samples=list(objects)), training)
    return note_image_sizes(data['inputs'][:1].clone(), [images[0].shape[1:]]), data['data_samples'][:1]


def losses(model, samples):
    model.train()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm | nn.Dropout | nn.MultiheadAttention):
            module.eval()
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(0)
    values = model.loss(*first_of(model, samples, training=True))
    return {
        key: float(sum(value) if isinstance(value, list) else value) for key, value in values.items() if 'loss' in key
    }


def predicted(model, samples):
    model.eval()
    with torch.no_grad():
        return model.predict(*first_of(model, samples, training=False), rescale=False)[0].pred_instances


def differences(name, size=(90, 125), larger=(160, 192), backbone=None):
    """How far losses and detections of an image in a padded batch are from those of the image alone."""
    model, samples = detector(name, backbone), [sample(side, name in MASKS, i) for i, side in enumerate((size, larger))]
    one, two = losses(model, samples[:1]), losses(model, samples)
    found = dict(losses=max(abs(one[key] - two[key]) / max(abs(one[key]), 0.01) for key in one))
    if name == 'SingleStageDetector':  # SSD of mmdet 3.5.1 cannot predict: its head has no loss_cls
        return found
    one, two = predicted(model, samples[:1]), predicted(model, samples)
    assert len(one) > 10
    boxes = (one.bboxes[:, None] - two.bboxes).abs().amax(-1)
    scores = (one.scores[:, None] - two.scores).abs()
    rows, columns = linear_sum_assignment(boxes + 1e3 * scores + 1e3 * (one.labels[:, None] != two.labels))
    found['scores'] = scores[rows, columns].max().item()
    found['boxes'] = boxes[rows, columns].quantile(0.95).item()  # rounding may let NMS keep another one
    if 'masks' in one:
        differ = [part.masks[order, : size[0], : size[1]] for part, order in ((one, rows), (two, columns))]
        found['masks'] = (differ[0] != differ[1]).float().mean().item()
    return found


def test_the_page_has_the_tested_detectors():
    table = PAGE.read_text().partition("## mmdet's detectors")[2].partition('\n## ')[0]
    rows = [line.split('|')[1] for line in table.splitlines() if line.startswith('|')]
    assert set(re.findall('`(.*?)`', ' '.join(rows))) == TESTED
    assert {CLASSES.get(name, name) for name in ROWS} == TESTED


def test_a_detector_that_was_not_tested_gives_one_warning():
    class Own(MODELS.get('mmdet.RetinaNet')):
        pass

    class Other(MODELS.get('mmdet.FSAF')):
        pass

    for cls, names in ((Own, []), (Other, ['FSAF'])):
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        model.backbone = nn.Conv2d(3, 4, 3)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter('always')
            mask_padding(model)
        assert [str(one.message).split()[1] for one in found] == names
        assert all(one.filename == __file__ and 'docs/concepts/padding.md' in str(one.message) for one in found)


@pytest.mark.parametrize('name', fast_first(ROWS, *FAST))
def test_a_row_of_the_table(name):
    found = differences(name, *(((300, 300), (310, 420)) if 'ssd' in ROWS[name][0] else ()))
    assert {key for key, value in found.items() if value <= EXACT[key]} == ROWS[name][1]


STAGES = dict(embed_dims=[8, 16, 32, 64], num_heads=[1, 2, 4, 8], depths=[1] * 4, mlp_ratios=[2] * 4)
OWN = {
    'PVT': dict(type='tokennorm.PVT', arch=STAGES | dict(sr_ratios=[8, 4, 2, 1])),
    'PVTv2': dict(type='tokennorm.PVTv2', arch=STAGES | dict(sr_ratios=[8, 4, 2, 1])),
    'Swin': dict(type='tokennorm.Swin', arch=STAGES | dict(depths=[2, 1, 1, 2])),
}
NORMS = dict(LN={}, DTN=dict(token_norm_cfg=dict(type='DTN')), DPN=dict(stem_cfg=dict(type='DualPatchEmbed')))


@pytest.mark.parametrize(
    ('name', 'backbone', 'norm'),
    [
        ('RTMDet', 'Swin', 'DTN'),
        *(slow('RTMDet', backbone, norm) for backbone in OWN for norm in NORMS if (backbone, norm) != ('Swin', 'DTN')),
        *(slow(name, backbone, 'DTN') for name in ('CascadeRCNN', 'DINO', 'Mask2Former') for backbone in OWN),
    ],
)
def test_a_row_with_a_backbone_of_this_package(name, backbone, norm):
    found = differences(name, backbone=OWN[backbone] | NORMS[norm])
    if name == 'Mask2Former':  # boxes around random masks may be the whole image
        del found['boxes']
    assert {key for key, value in found.items() if value <= EXACT[key]} == ROWS[name][1]
