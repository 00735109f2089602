"""Feature maps are contiguous: mmcv's RoIAlign misreads other memory formats, without an error."""

import pytest
import torch
import torchvision
from mmcv.ops import roi_align
from mmdet.models.necks import FPN

from tests.helpers.compare import assert_near
from tokennorm.backbones import PVT, PVTv2, Swin, TimmBackbone, ViT
from tokennorm.models.necks import SimpleFeaturePyramid

PYRAMID = dict(embed_dims=(8, 16), depths=(1, 1), num_heads=(1, 2), mlp_ratios=(1, 1))
REDUCED = PYRAMID | dict(sr_ratios=(2, 1))
TIMM_SWIN = dict(embed_dim=16, depths=(2, 2), num_heads=(2, 4), strict_img_size=False)
BACKBONES = {
    'PVT': (lambda: PVT(REDUCED), [8, 16]),
    'PVTv2': (lambda: PVTv2(REDUCED), [8, 16]),
    'Swin': (lambda: Swin(PYRAMID), [8, 16]),
    'ViT': (lambda: ViT(dict(embed_dims=16, depth=1, num_heads=2, mlp_ratio=1)), [16]),
    'timm': (lambda: TimmBackbone('swin_tiny_patch4_window7_224', out_indices=(0,), timm_args=TIMM_SWIN), [16]),
}


@pytest.mark.parametrize('name', BACKBONES)
@torch.no_grad()
def test_roi_align_of_mmcv_reads_the_maps_right(name):
    build, channels = BACKBONES[name]
    backbone = build().eval()
    neck = SimpleFeaturePyramid(16, 8) if name == 'ViT' else FPN(channels, 8, len(channels))
    maps = backbone(torch.randn(1, 3, 64, 96))
    rois = torch.tensor([[0, 5.0, 9.0, 60.0, 50.0]])
    for i, x in enumerate([*maps, *neck(maps)]):
        actual = roi_align(x, rois, (7, 7), x.shape[-1] / 96, 2, 'avg', True)
        expected = torchvision.ops.roi_align(x, rois, (7, 7), x.shape[-1] / 96, 2, True)
        assert_near(f'{name}, map {i}', actual, expected)
