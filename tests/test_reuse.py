"""Outside of detectors: segmentors of mmseg and classifiers of mmpretrain."""

from pathlib import Path

import mmpretrain.utils
import pytest
import torch
from mmengine import Config, DefaultScope
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS
from mmengine.structures import PixelData

STAGES = dict(embed_dims=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_heads=[1, 2, 3, 4], mlp_ratios=[1, 1, 1, 1])
PVT_STAGES = STAGES | dict(sr_ratios=[8, 4, 2, 1])
# mmseg's semantic FPN with another backbone. (onedl-mmengine 0.10.12 does not find onedl-mmsegmentation under
# `mmseg::`; mmseg's configs are reached by their paths.)
SEGMENTOR = """
_base_ = '{configs}/_base_/models/fpn_r50.py'
model = dict(
    pretrained=None,
    backbone=dict(_delete_=True, type='tokennorm.PVT', arch={arch}, stem_cfg=dict(type='DualPatchEmbed')),
    neck=dict(in_channels=[8, 16, 24, 32]),
)
"""
CLASSIFIERS = {
    'tokennorm.Swin': dict(arch=STAGES, out_type='avg_featmap', token_norm_cfg=dict(type='DTN')),
    'tokennorm.PVT': dict(arch=PVT_STAGES, out_type='cls_token', stem_cfg=dict(type='DualPatchEmbed')),
}


def build(model, scope):
    with DefaultScope.overwrite_default_scope(scope):
        return revert_sync_batchnorm(MODELS.build(model))


def backward_reaches_all_of(backbone, losses):
    sum(loss for name, loss in losses.items() if 'loss' in name).backward()
    for name, p in backbone.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
    assert backbone.get_parameter('stages.0.patch_embed.proj.weight').grad.abs().max() > 0


@pytest.mark.filterwarnings('ignore:Default ``avg_non_ignore`` is False')  # mmseg, of its own configs
def test_a_segmentor_of_mmseg_trains_and_predicts(tmp_path):
    mmseg = pytest.importorskip('mmseg')
    from mmseg.structures import SegDataSample
    from mmseg.utils import register_all_modules

    register_all_modules(init_default_scope=False)
    configs = str(Path(mmseg.__file__).parent / '.mim' / 'configs')
    (tmp_path / 'config.py').write_text(SEGMENTOR.format(configs=configs, arch=PVT_STAGES))
    cfg = Config.fromfile(tmp_path / 'config.py').model
    cfg.data_preprocessor.size = (66, 100)
    model = build(cfg, 'mmseg')
    sample = SegDataSample(gt_sem_seg=PixelData(data=torch.randint(0, 19, (1, 66, 100))))
    sample.set_metainfo(dict(img_shape=(66, 100), ori_shape=(66, 100)))
    data = dict(inputs=[torch.randint(0, 256, (3, 66, 100))] * 2, data_samples=[sample] * 2)
    losses = model(**model.data_preprocessor(data, training=True), mode='loss')
    backward_reaches_all_of(model.backbone, losses)
    with torch.no_grad():
        prediction = model.eval().test_step(dict(inputs=data['inputs'][:1], data_samples=[sample]))[0]
    assert prediction.pred_sem_seg.data.shape == (1, 66, 100)


@pytest.mark.parametrize('backbone', CLASSIFIERS)
def test_a_classifier_of_mmpretrain_trains_and_predicts(backbone):
    from mmpretrain.structures import DataSample

    mmpretrain.utils.register_all_modules(init_default_scope=False)
    model = build(
        dict(
            type='ImageClassifier',
            backbone=dict(type=backbone, **CLASSIFIERS[backbone]),
            head=dict(type='LinearClsHead', num_classes=5, in_channels=32),
        ),
        'mmpretrain',
    )
    images = torch.randn(2, 3, 64, 96)
    losses = model(images, [DataSample().set_gt_label(label) for label in (1, 4)], mode='loss')
    backward_reaches_all_of(model.backbone, losses)
    with torch.no_grad():
        scores = model.eval()(images, mode='predict')
    assert all(sample.pred_score.sum().item() == pytest.approx(1) for sample in scores)
