"""Forward passes on a GPU that does not exist, up to the first step whose shape depends on values."""

from copy import deepcopy

import pytest
import torch
from mmdet.models import DetTTAModel
from mmdet.structures import DetDataSample
from mmengine.config import ConfigDict
from mmengine.model import BaseModel
from mmengine.structures import InstanceData
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from tests.helpers.backbones import BACKBONES, build
from tests.helpers.cases import fast_first, slow
from tests.helpers.configs import ROOT, build_model, resolve
from tests.helpers.fake_cuda import devices, fake_cuda
from tests.helpers.norms import NORMS, cfg_of
from tests.helpers.third_party import MODELS as THIRD_PARTY
from tokennorm import replace_norms
from tokennorm.backbones import PVT, PVTv2, Swin, ViT
from tokennorm.images.padding import image_sizes_of, note_image_sizes
from tokennorm.layers import STEMS

DETECTORS = [
    'demo/mask-rcnn_pvt-mini_fpn_nuclei.py',
    'trial/mask-rcnn_efficientnet-lite0_fpn.py',
    'trial/retinanet_efficientnet-lite0_fpn.py',
    'trial/retinanet_pvt-mini-dtn_fpn.py',
    'trial/retinanet_pvt-mini-local_fpn.py',
    'timm/retinanet_convnext-t_fpn_1x_coco.py',
]
OTHERS = [cls for cls in BACKBONES if cls is not ViT]


@pytest.mark.parametrize(('cls', 'name'), [*((ViT, name) for name in NORMS), *(slow(cls, 'DTN') for cls in OTHERS)])
def test_each_norm_and_each_backbone(cls, name):
    model = build(cls, token_norm_cfg=cfg_of(name)).train()
    with fake_cuda(model):
        assert devices(model(torch.empty(2, 3, 96, 128, device='cuda'))) == {'cuda'}


@pytest.mark.parametrize(
    ('cls', 'name'),
    [(PVT, 'DTN'), (ViT, 'DTN'), (ViT, 'BN'), slow(ViT, 'IN'), slow(ViT, 'SN'), slow(PVTv2, 'DTN'), slow(Swin, 'DTN')],
)
def test_backbones_with_padding(cls, name):
    model = build(cls, token_norm_cfg=cfg_of(name))
    model.train(name != 'BN')  # in training it takes the tokens of the images, whose number is a value
    with fake_cuda(model):
        images = note_image_sizes(torch.empty(2, 3, 96, 128, device='cuda'), [(96, 128), (70, 90)])
        assert devices(model(images)) == {'cuda'}


@pytest.mark.parametrize(
    ('cls', 'stem'), [*((ViT, stem) for stem in STEMS), *(slow(cls, 'DualPatchEmbed') for cls in OTHERS)]
)
def test_each_stem_and_each_backbone_in_bfloat16(cls, stem):
    model = build(cls, token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type=stem)).train()
    with fake_cuda(model), torch.autocast('cuda', torch.bfloat16):
        assert devices(model(torch.empty(2, 3, 96, 128, device='cuda'))) == {'cuda'}


@pytest.mark.parametrize('name', fast_first(THIRD_PARTY, 'vit', 'mmdet pvt'))
def test_replaced_norms(name):
    make, size, *_ = THIRD_PARTY[name]
    model = make()
    replace_norms(model, dict(type='DTN'))
    with fake_cuda(model):
        assert devices(model(torch.empty(2, 3, *size, device='cuda'))) == {'cuda'}


@pytest.mark.parametrize('path', fast_first(DETECTORS, DETECTORS[1]))
def test_detectors(path):
    """From a padded batch to what the heads give, of a second stage for boxes that are given."""
    cfg = deepcopy(resolve(ROOT / path))
    cfg.model.backbone.pop('init_cfg', None)
    if 'pretrained' in cfg.model.backbone:
        cfg.model.backbone.pretrained = False
    model = build_model(cfg).eval()
    with fake_cuda(model):
        images = note_image_sizes(torch.empty(2, 3, 96, 128, device='cuda'), [(96, 128), (70, 90)])
        assert image_sizes_of(images).device.type == 'cuda'
        two_stages = hasattr(model, 'roi_head')
        maps = model.extract_feat(images)
        assert devices((model.rpn_head if two_stages else model.bbox_head)(maps)) == {'cuda'}
        if two_stages:
            heads, boxes = model.roi_head, torch.empty(7, 5, device='cuda')
            pooled = heads.bbox_roi_extractor.roi_layers[0](maps[0], boxes)
            assert devices(heads.bbox_head(pooled)) == {'cuda'}
            pooled = heads.mask_roi_extractor.roi_layers[0](maps[0], boxes)
            assert devices(heads.mask_head(pooled)) == {'cuda'}


def test_views_of_an_image_are_merged():
    class Untrained(BaseModel):
        def forward(self):
            pass

    merge = ConfigDict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=9)
    model = DetTTAModel(module=Untrained(), tta_cfg=merge)
    with fake_cuda(model):
        views = []
        for flip in (False, True):
            boxes, scores = torch.empty(6, 4, device='cuda'), torch.empty(6, device='cuda')
            labels = torch.zeros(6, dtype=torch.long, device='cuda')
            view = DetDataSample(metainfo=dict(ori_shape=(96, 128), flip=flip, flip_direction='horizontal'))
            view.pred_instances = InstanceData(bboxes=boxes, scores=scores, labels=labels)
            views.append(view)
        with pytest.raises(DynamicOutputShapeException, match='nms'):  # whose devices were compared
            model.merge_preds([views])


def test_what_is_made_on_the_cpu_raises():
    with fake_cuda(), pytest.raises(RuntimeError, match='devices'):
        torch.empty(2, 3, 4, device='cuda') + torch.arange(4)
