"""The result for an image is the same alone and with padding around it."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmcv.ops import DeformConv2dPack, ModulatedDeformConv2dPack, RoIAlign
from mmdet.models.dense_heads import YOLOXHead
from mmdet.models.roi_heads.mask_heads import FusedSemanticHead, GlobalContextHead
from mmdet.structures import DetDataSample
from torch import nn

from tests.helpers.backbones import FOUR_STAGES, THREE_BLOCKS
from tests.helpers.compare import assert_near
from tests.helpers.exporting import build, config, matched
from tests.helpers.pvt import ARCH
from tests.helpers.weights import randomize
from tokennorm import mask_padding
from tokennorm.backbones import PVT, PVTv2, Swin, ViT
from tokennorm.config.open_config import read_config
from tokennorm.export.whole_detector import WholeDetector
from tokennorm.images.padding import ImageArea, extent_in_tokens, note_image_sizes
from tokennorm.layers.positions import resize_positions, resize_to_extents
from tokennorm.registry import type_name

SIZES = [(96, 64), (50, 128)]  # the second is rounded up to 64 x 128
CANVAS = (160, 192)


@pytest.mark.parametrize(
    ('pixels', 'tokens', 'sizes', 'wanted'),
    [
        (640, 160, [96, 640, 32], [24, 160, 8]),
        (672, 11, [448, 416, 672, 32], [7, 7, 11, 1]),  # stride 64: 11 is rounded up
        (448, 32, [224, 448], [16, 32]),  # stride 14
        (96, 1, [32, 96], [1, 1]),
        (64, 128, [32], [64]),  # upsampled
    ],
)
def test_extents_at_each_stride(pixels, tokens, sizes, wanted):
    assert extent_in_tokens(torch.tensor(sizes), pixels, tokens).tolist() == wanted


def on_canvas(images, canvas=CANVAS):
    """Images in a batch of a larger size, which knows their sizes."""
    batch = torch.zeros(len(images), images[0].shape[0], *canvas)
    for place, image in zip(batch, images, strict=True):
        place[:, : image.shape[1], : image.shape[2]] = image
    return note_image_sizes(batch, [image.shape[1:] for image in images])


def alone(image):
    """An image with the padding that it has in a batch of its own."""
    return on_canvas([image], [-(-side // 32) * 32 for side in image.shape[1:]])


def convolutions():
    """A network as those of CNNs, necks and heads, whose layers give padding values other than 0."""
    layers = [
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.Conv2d(6, 6, 5, stride=2, padding=2, groups=3),
        nn.Hardswish(),
        nn.ConvTranspose2d(6, 6, 4, stride=2, padding=1),
        nn.Conv2d(6, 4, 1),
        nn.Conv2d(4, 4, 3, padding=2, dilation=2),
    ]
    return randomize(nn.Sequential(*layers)).eval()


def test_convolutions_poolings_and_gradients_are_those_of_images_alone():
    torch.manual_seed(0)
    images = [torch.randn(3, *size) for size in SIZES]
    together, one = mask_padding(convolutions()), convolutions()
    one.load_state_dict(together.state_dict())
    outs = together(on_canvas(images))
    total = 0.0
    for i, image in enumerate(images):
        wanted = one(alone(image))[0]
        height, width = wanted.shape[1:]
        assert_near(f'image {i}', outs[i, :, :height, :width], wanted)
        total = total + outs[i, :, :height, :width].square().sum()
        wanted.square().sum().backward()
    total.backward()
    for (name, actual), wanted in zip(together.named_parameters(), one.parameters(), strict=True):
        assert_near(name, actual.grad, wanted.grad, 'backward')
    assert (one(on_canvas(images))[0, :, :48, :32] - outs[0, :, :48, :32]).abs().max() > 0.1, 'without the masks'


LAYERS = [
    nn.MaxPool2d(5, 1, 2),
    nn.MaxPool2d(3, 2, 1),
    nn.MaxPool2d(3, 2, ceil_mode=True),
    nn.MaxPool2d(2, 2, ceil_mode=True),
    nn.MaxPool2d(2, 2, 1),
    nn.MaxPool2d((3, 2), (2, 1), (1, 0), dilation=(2, 1)),
    nn.AdaptiveMaxPool2d(1),
    nn.AdaptiveAvgPool2d((1, 1)),
    *(
        nn.AvgPool2d(*sizes, ceil_mode=ceil_mode, count_include_pad=count)
        for sizes in ((3, 1, 1), (3, 2, 1), (2, 2), (2, 2, 1), ((5, 3), (2, 3), (2, 0)))
        for ceil_mode in (False, True)
        for count in (False, True)
    ),
    nn.AvgPool2d(3, 2, 1, ceil_mode=True, divisor_override=5),
    *(
        nn.Conv2d(4, 6, 3, stride, padding, dilation, groups=2, padding_mode=mode)
        for mode in ('zeros', 'replicate', 'reflect', 'circular')
        for stride, padding, dilation in ((1, 1, 1), (2, 1, 1), (1, (2, 1), (2, 1)), (1, 'same', 1))
    ),
    *(nn.Conv2d(4, 6, 2, 2, 1, padding_mode=mode) for mode in ('zeros', 'reflect')),
    nn.Conv2d(4, 6, 2, 2, dilation=3),
    nn.Conv2d(4, 6, 1, padding=1),
    nn.Conv2d(4, 6, (1, 4), padding='same', padding_mode='replicate', bias=False),
    ModulatedDeformConv2dPack(4, 6, 3, padding=1, deform_groups=2),
    DeformConv2dPack(4, 6, 3, stride=2, padding=1),
]


@pytest.mark.parametrize('layer', LAYERS, ids=lambda layer: re.sub(r'\W+', '-', str(layer).split('\n')[0]).strip('-'))
@pytest.mark.parametrize('canvas', [(16, 20), (10, 12)])
def test_a_layer_reads_nothing_from_outside_of_the_image(layer, canvas):
    """Also after an activation below 0, and at the border of an image that is as wide as the canvas."""
    torch.manual_seed(0)
    one = nn.Sequential(nn.Conv2d(3, 4, 1), nn.SiLU(), copy.deepcopy(layer))
    nn.init.constant_(one[0].bias, -1.5)
    for parameter in one[2].parameters():
        nn.init.normal_(parameter)
    masked = mask_padding(copy.deepcopy(one), divisor=1)
    images = [torch.randn(3, 9, 11), torch.randn(3, 8, canvas[1])]
    outs, total = masked(on_canvas(images, canvas)), 0.0
    for i, image in enumerate(images):
        wanted = one(image[None])[0]
        height, width = wanted.shape[1:]
        assert_near(f'image {i}', outs[i, :, :height, :width], wanted)
        total = total + outs[i, :, :height, :width].square().sum()
        wanted.square().sum().backward()
    total.backward()
    for (name, actual), wanted in zip(masked.named_parameters(), one.parameters(), strict=True):
        assert_near(name, actual.grad, wanted.grad, 'backward')


def test_what_is_not_finite_in_the_padding_does_not_enter():
    model = mask_padding(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)), divisor=1)
    image = torch.randn(1, 3, 9, 11)
    padded = F.pad(image, (0, 5, 0, 4), value=torch.nan)
    assert_near('outputs', model(note_image_sizes(padded, [(9, 11)]))[..., :9, :11], model(image))


@pytest.mark.parametrize('kind', [PVT, PVTv2, Swin, ViT])
@pytest.mark.parametrize('norm', ['LN', 'DTN', 'LocalLayerNorm'])
def test_feature_maps_are_those_of_images_alone(kind, norm):
    torch.manual_seed(0)
    arch = {Swin: FOUR_STAGES | dict(depths=(2, 2, 1, 1)), ViT: THREE_BLOCKS}.get(kind, ARCH)
    kwargs = dict(window_size=3) if kind in (Swin, ViT) else {}
    kwargs |= dict(global_indices=[1], out_indices=(0, 1, 2)) if kind is ViT else {}
    model = kind(arch, token_norm_cfg=dict(type=norm), **kwargs)
    model = mask_padding(randomize(model).eval())
    images = [torch.randn(3, *size) for size in SIZES]
    together = model(on_canvas(images))
    for i, image in enumerate(images):
        for stage, wanted in enumerate(model(alone(image))):
            height, width = wanted.shape[2:]
            assert_near(f'image {i}, stage {stage}', together[stage][i, :, :height, :width], wanted[0], 'backward')


@pytest.mark.parametrize('mode', ['bilinear', 'bicubic'])
def test_positions_are_those_of_the_size_of_each_image(mode):
    grid = torch.randn(1, 5, 7, 3)
    resized = resize_to_extents(grid, (12, 16), torch.tensor([[5, 7], [12, 9], [2, 16]]), mode)
    for one, (rows, columns) in zip(resized, [(5, 7), (12, 9), (2, 16)], strict=True):
        assert_near('grid', one[:rows, :columns], resize_positions(grid, (rows, columns), mode)[0])
    assert resized.isfinite().all()


def test_roi_align_at_the_border_of_an_image():
    torch.manual_seed(0)
    feature_map, larger = torch.randn(1, 4, 6, 8), torch.randn(1, 4, 12, 16)
    larger[..., :6, :8] = feature_map
    area = ImageArea(1)
    area.start(None, (note_image_sizes(torch.zeros(1, 3, 48, 64), [(24, 32)]),))
    boxes = torch.tensor([[0, 10.0, 8.0, 32.0, 24.0], [0, 0.0, 0.0, 30.5, 23.5]])
    align = RoIAlign(7, spatial_scale=0.25, sampling_ratio=0, aligned=True)
    wanted = align(feature_map, boxes)
    assert (align(larger, boxes) - wanted).abs().max() > 0.1, 'without'
    assert_near('features', align(area.replicated(larger), boxes), wanted)


def test_nothing_is_computed_without_padding():
    area = ImageArea(32)
    for size, canvas in (((64, 96), (64, 96)), ((50, 90), (64, 96))):  # also where it is rounded up only
        area.start(None, (note_image_sizes(torch.zeros(1, 3, *canvas), [size]),))
        x = torch.randn(1, 4, 16, 24)
        assert area.masked(x) is x
        assert area.replicated(x) is x
        assert area.extents(16, 24) is None


def test_layers_that_are_not_compiled_get_the_sizes_of_the_batch():
    """Also after a batch before it was compiled."""
    torch.manual_seed(0)
    model = nn.Module()
    model.backbone, model.neck = convolutions()[:5], nn.Conv2d(6, 4, 3, padding=1)
    mask_padding(model)
    images = [torch.randn(3, *size) for size in SIZES]
    batch, other = on_canvas(images), on_canvas(images[::-1])
    wanted = model.neck(model.backbone(batch))
    model.neck(model.backbone(other))
    compiled = torch.compile(model.backbone, backend='eager')
    assert torch.equal(model.neck(compiled(batch)), wanted)


def test_images_cut_to_larger_multiples_are_masked():
    area = ImageArea(32)
    x = torch.ones(1, 1, 12, 12)
    for cut_to, inside in ((32, 144), (16, 144), (64, 6 * 4), (None, 6 * 4)):
        sizes = torch.tensor([[90, 60]])
        sizes.cut_to = cut_to
        images = torch.zeros(1, 3, 192, 192)
        images.image_sizes = sizes
        area.start(None, (images,))
        assert area.masked(x).sum() == inside


@pytest.mark.parametrize('divisor', [32, 64])
def test_a_detector_for_one_image_is_that_for_any_number(divisor):
    torch.manual_seed(0)
    cfg = config()
    cfg.model.type = 'tokennorm.RetinaNet'
    cfg.model.data_preprocessor.pad_size_divisor = divisor
    model = build(cfg)
    image, sizes = torch.rand(1, 3, 90, 125) * 255, torch.tensor([[90, 125]])
    with torch.no_grad():
        found, wanted = (WholeDetector(model, alone=alone)(image, sizes) for alone in (True, False))
    for actual, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(actual, expected)


def test_copies_have_an_area_of_their_own():
    model = mask_padding(convolutions())
    images = [torch.randn(3, *size) for size in SIZES]
    batch = on_canvas(images)
    wanted = model(batch)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        model(torch.randn(1, 3, 64, 64))
        assert torch.equal(other(batch), wanted)
    assert model.state_dict().keys() == convolutions().state_dict().keys()


def test_a_data_preprocessor_must_note_the_sizes():
    cfg = config()
    cfg.model.data_preprocessor.type = 'DetDataPreprocessor'
    with pytest.raises(ValueError, match='DetDataPreprocessor does not note the sizes of images'):
        mask_padding(build(cfg))


def test_classifiers_are_refused():
    with pytest.raises(ValueError, match="out_type='cls_token' is a classifier"):
        mask_padding(ViT(THREE_BLOCKS, out_type='cls_token'))


def differences(detector, padded_detector, image, canvas, share=1.0):
    """The largest difference of each output, and the number of detections, for an image alone and on a canvas.

    With a share, of that part of the detections: rounding may let NMS keep another one of two with equal scores.
    """
    sizes = torch.tensor([image.shape[1:]])
    larger = torch.zeros(1, 3, *canvas)
    larger[0, :, : image.shape[1], : image.shape[2]] = image
    with torch.no_grad():
        alone, padded = (
            [value[0].double().numpy() for value in outs]
            for outs in (detector(image[None], sizes), padded_detector(larger, sizes))
        )
    order = matched(alone[:3], padded[:3])  # rounding may swap equal scores
    largest = [abs(a - b[order]).reshape(len(a), -1).max(1) for a, b in zip(alone, padded, strict=True)]
    return [np.quantile(one, share) for one in largest], (alone[1] > 0).sum()


@pytest.mark.parametrize('kind', ['retinanet', 'mask-rcnn'])
@pytest.mark.parametrize('strides', [(4, 8), (4, 8, 16, 32, 64)], ids=['', 'coarse'])
def test_detections_are_the_same_on_a_canvas(kind, strides):
    torch.manual_seed(0)
    cfg = config(kind, strides=strides)
    plain = build(cfg)
    cfg.model.type = f'tokennorm.{cfg.model.type}'
    masked = build(cfg)
    masked.load_state_dict(plain.state_dict())
    whole = WholeDetector(plain), WholeDetector(masked)
    for size in ((90, 125), (96, 128)):  # with boxes up to the last pixel of the feature maps
        image = torch.rand(3, *size) * 255
        (boxes, scores, labels, *masks), found = differences(*whole, image, (200, 288))
        assert found > 10
        assert boxes < 0.01
        assert max(scores, labels, *masks) < 1e-4
    assert differences(whole[0], whole[0], image, (200, 288))[0][1] > 1e-3, 'without masks'


def test_what_a_head_learns_from_a_padded_batch_is_from_images_alone():
    torch.manual_seed(0)
    cfg = config()
    cfg.model.type = 'tokennorm.RetinaNet'
    model = build(cfg).train()
    images = [torch.rand(3, *size) for size in SIZES]
    scores, deltas = model.bbox_head(model.extract_feat(on_canvas(images)))
    for i, image in enumerate(images):
        for level, (wanted, wanted_deltas) in enumerate(
            zip(*model.bbox_head(model.extract_feat(alone(image))), strict=True)
        ):
            height, width = wanted.shape[2:]
            assert_near(f'{i} {level}', scores[level][i, :, :height, :width], wanted[0], 'backward')
            assert_near(f'{i} {level}', deltas[level][i, :, :height, :width], wanted_deltas[0], 'backward')
            beyond = scores[level][i].sigmoid().sum() - wanted.sigmoid().sum()
            assert abs(beyond.item()) < 1e-2, 'no loss of anchors in the padding'


def test_proposals_are_those_of_the_image_alone():
    torch.manual_seed(0)
    cfg = config('mask-rcnn')
    cfg.model.type = 'tokennorm.MaskRCNN'
    model = build(cfg)
    image, meta = torch.rand(3, 96, 64) * 255, DetDataSample(metainfo=dict(img_shape=(96, 64)))
    with torch.no_grad():
        alone_, padded = (
            model.rpn_head.predict(model.extract_feat(x), [meta], rescale=False)[0]
            for x in (alone(image), on_canvas([image]))
        )
    assert len(alone_) == len(padded) > 10
    order = [x.scores.argsort(descending=True, stable=True) for x in (alone_, padded)]
    torch.testing.assert_close(alone_.scores[order[0]], padded.scores[order[1]], rtol=1e-5, atol=1e-6)
    assert (
        torch.cdist(alone_.bboxes, padded.bboxes, compute_mode='donot_use_mm_for_euclid_dist').min(1).values.max()
        < 0.01
    )


def test_objectness_of_yolox_has_no_loss_in_the_padding():
    torch.manual_seed(0)
    model = nn.Module()
    model.backbone = nn.Conv2d(3, 4, 8, stride=8)
    norm = dict(type='BN')
    model.bbox_head = YOLOXHead(3, 4, feat_channels=4, stacked_convs=1, strides=(8,), norm_cfg=norm).eval()
    mask_padding(model)
    image = torch.rand(3, 96, 64)
    scores, boxes, objectness = model.bbox_head([model.backbone(on_canvas([image]))])
    wanted = model.bbox_head([model.backbone(alone(image))])
    for found, expected in zip((scores, boxes, objectness), wanted, strict=True):
        assert_near('map', found[0][..., :12, :8], expected[0])
    for logits, expected in ((scores, wanted[0]), (objectness, wanted[2])):
        assert_near('loss', F.softplus(logits[0]).sum(), F.softplus(expected[0]).sum())
    assert (boxes[0][..., 12:, :] > -100).all()


def test_a_head_with_softmax_has_background_in_the_padding():
    class Head(nn.Module):  # as SSDHead
        use_sigmoid_cls, cls_out_channels = False, 3

        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 12, 3, padding=1)  # 4 anchors

        def forward(self, maps):
            return [self.conv(x) for x in maps], maps

    torch.manual_seed(0)
    model = nn.Module()
    model.backbone, model.bbox_head = nn.Conv2d(3, 4, 8, stride=8), Head()
    mask_padding(model)
    image = torch.rand(3, 96, 64)
    found, expected = (model.bbox_head([model.backbone(x)])[0][0] for x in (on_canvas([image]), alone(image)))
    assert_near('scores', found[..., :12, :8], expected)
    chances = found.unflatten(1, (4, 3)).softmax(2)
    padding = torch.ones(found.shape[2:], dtype=torch.bool)
    padding[:12, :8] = False
    assert (chances[:, :, 2][..., padding] == 1).all()
    assert (chances[:, :, :2][..., padding] == 0).all()


def test_heads_of_whole_images_inside_of_a_roi_head():
    """Of HTC and SCNet; the others get boxes, and their number may be that of the images."""

    class Backbone(nn.Conv2d):
        def forward(self, x):
            return (super().forward(x),)

    torch.manual_seed(0)
    model = nn.Module()
    model.backbone, model.roi_head = Backbone(3, 4, 8, stride=8), nn.Module()
    model.roi_head.glbctx_head = GlobalContextHead(num_convs=1, in_channels=4, conv_out_channels=4, num_classes=3)
    model.roi_head.semantic_head = FusedSemanticHead(1, 0, num_convs=1, in_channels=4, conv_out_channels=4)
    model.roi_head.mask_head = nn.Conv2d(4, 4, 3, padding=1)
    mask_padding(randomize(model))
    image, boxes = torch.rand(3, 96, 64), torch.randn(1, 4, 20, 24)
    for head in (model.roi_head.glbctx_head, model.roi_head.semantic_head):
        wanted, found = (head(model.backbone(x)) for x in (alone(image), on_canvas([image])))
        for one, other in zip(wanted, found, strict=True):
            assert_near(type(head).__name__, other[..., :12, :8] if one.ndim == 4 else other, one)
    last = model.roi_head.mask_head
    assert torch.equal(last(boxes), F.conv2d(boxes, last.weight, last.bias, padding=1))


def test_an_area_of_other_modules_stays():
    class Foreign(nn.Conv2d):
        area = property(lambda self: self.kernel_size[0] * self.kernel_size[1])

    model = mask_padding(nn.Sequential(Foreign(3, 4, 3)))
    assert model[0].area == 9


CHOSEN = [
    'trial/retinanet_efficientnet-lite0_fpn',
    'trial/mask-rcnn_efficientnet-lite0_fpn',
    *(f'trial/{kind}_pvt-mini{norm}_fpn' for kind in ('retinanet', 'mask-rcnn') for norm in ('', '-dtn', '-local')),
    'pvt_v2/retinanet_pvtv2-b2_fpn_1x_coco',  # on a GPU
    'swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco',
]


@pytest.mark.slow
@pytest.mark.parametrize('name', CHOSEN)
def test_detections_of_the_default_configs_are_the_same_on_a_canvas(name):
    torch.manual_seed(0)
    cfg = read_config(name)
    cfg.model.backbone.init_cfg = None
    cfg.model.type = f'tokennorm.{type_name(cfg.model)}'  # as `train` sets it where no config is named
    if 'roi_head' in cfg.model:
        cfg.model.test_cfg.rcnn.score_thr = 0.001  # 80 classes of random weights
    model = build(cfg)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.bias, std=0.5)
    rng = np.random.default_rng(0)
    for size in ((150, 187), (96, 64)):
        image = torch.from_numpy(rng.uniform(0, 255, (3, *size)).astype(np.float32))
        whole = WholeDetector(model)
        (boxes, scores, labels, *masks), found = differences(whole, whole, image, (352, 384), share=0.95)
        assert found > 10
        assert boxes < 0.1
        assert max(scores, labels, *masks) < 1e-3
