"""TokenNorm's backbones in RTMDet, Cascade Mask R-CNN, DINO and Mask2Former (configs/detectors)."""

from copy import deepcopy

import pytest
import torch
from mmdet.registry import MODELS
from mmengine import DefaultScope
from mmengine.optim import build_optim_wrapper

from tests.helpers.cases import slow
from tests.helpers.compare import assert_near
from tests.helpers.configs import ROOT, build_model, judged_model, resolve
from tests.helpers.samples import sample_with_two_objects
from tests.helpers.weights import randomize
from tokennorm.checkpoints import convert_detector

CONFIGS = sorted((ROOT / 'detectors').glob('*.py'))
DTN, DPN = dict(token_norm_cfg=dict(type='DTN')), dict(stem_cfg=dict(type='DualPatchEmbed'))
VARIANTS = dict(LN={}, DTN=DTN, DPN=DPN)
# Small forms of a backbone: TokenNorm's, mmdet's, and the channels of its stages.
DEPTHS, HEADS, WIDTHS = (1, 1, 1, 1), (1, 2, 3, 4), (8, 16, 24, 32)
OURS = dict(depths=DEPTHS, num_heads=HEADS, mlp_ratios=(2,) * 4, embed_dims=WIDTHS)
THEIRS = dict(num_layers=DEPTHS, num_heads=HEADS, mlp_ratios=(2,) * 4, embed_dims=8)
REDUCED = dict(sr_ratios=(8, 4, 2, 1))
SWIN = dict(depths=(2, 1, 1, 2), num_heads=(1, 2, 4, 8))
BACKBONES = {
    'PVT': (dict(arch=OURS | REDUCED), dict(type='PyramidVisionTransformer', **THEIRS, **REDUCED), WIDTHS),
    'PVTv2': (dict(arch=OURS | REDUCED), dict(type='PyramidVisionTransformerV2', **THEIRS, **REDUCED), WIDTHS),
    'Swin': (
        dict(arch=SWIN | dict(embed_dims=(8, 16, 32, 64), mlp_ratios=(4,) * 4)),
        dict(type='SwinTransformer', embed_dims=8, **SWIN),
        (8, 16, 32, 64),
    ),
}
ALL = [(path.stem.split('_')[0], name) for path in CONFIGS for name in BACKBONES]


def config_of(detector, backbone, variant='LN', upstream=False):
    """The config of a detector with a small backbone, and few queries, layers and regions."""
    cfg = deepcopy(resolve(next(path for path in CONFIGS if path.name.startswith(detector))))
    ours, theirs, channels = BACKBONES[backbone]
    stages = cfg.model.backbone.get('out_indices', (0, 1, 2, 3))
    own = dict(type=f'tokennorm.{backbone}', **ours, **VARIANTS[variant])
    cfg.model.backbone = (theirs if upstream else own) | dict(out_indices=stages, drop_path_rate=0.0)
    part = cfg.model.get('neck') or cfg.model.panoptic_head
    part.in_channels = [channels[stage] for stage in stages]
    cfg.model.data_preprocessor.pop('batch_augments', None)  # to 1024 x 1024 pixels
    if detector == 'rtmdet':
        cfg.model.bbox_head.exp_on_reg = True  # random weights then give no sides below 0
    elif detector.startswith('dino'):
        cfg.model.num_queries = 20
        cfg.model.encoder.num_layers, cfg.model.decoder.num_layers = 1, 2
    elif detector == 'mask2former':
        part.num_queries, part.transformer_decoder.num_layers, part.pixel_decoder.encoder.num_layers = 10, 2, 1
    elif 'rcnn' in detector:
        for stage in cfg.model.train_cfg.rcnn:
            stage.sampler.num = 16
        for head in cfg.model.roi_head.bbox_head:
            head.fc_out_channels = 32
    return cfg


def samples(detector, dtype=torch.float32):
    sample = sample_with_two_objects()
    sample.set_metainfo(dict(ori_shape=(96, 128), scale_factor=(1.0, 1.0)))
    sample.gt_instances.bboxes = sample.gt_instances.bboxes.to(dtype)
    if detector == 'rtmdet':
        del sample.gt_instances.masks
    torch.manual_seed(0)
    images = [torch.randint(0, 256, (3, 96, 128), dtype=torch.uint8) for _ in range(2)]
    return dict(inputs=images, data_samples=[sample, deepcopy(sample)])


@pytest.mark.parametrize('path', CONFIGS, ids=lambda path: path.stem)
def test_a_config_builds_and_is_short(path):
    with torch.device('meta'):
        model = judged_model(resolve(path), 'unfit-size')
    assert type(model.backbone).__module__.startswith('tokennorm.')
    assert model.data_preprocessor.notes_image_sizes
    assert len(path.read_text().splitlines()) <= 45


@pytest.mark.parametrize(
    ('detector', 'backbone', 'variant'),
    [
        (detector, backbone, variant) if (detector, backbone, variant) == ('rtmdet', 'PVTv2', 'DTN') else
        slow(detector, backbone, variant)
        for detector, backbone in ALL
        for variant in VARIANTS
    ],
)  # fmt: skip
def test_one_step_moves_every_parameter_of_the_backbone(detector, backbone, variant):
    cfg = config_of(detector, backbone, variant)
    model = build_model(cfg).train()
    model.init_weights()
    cfg.optim_wrapper.pop('clip_grad', None)
    with DefaultScope.overwrite_default_scope('mmdet'):
        optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    decay = {id(p): group['weight_decay'] for group in optim_wrapper.optimizer.param_groups for p in group['params']}
    parts = 'norm', 'pos_embed', 'mean_logit', 'var_logit', 'position', 'bias_table'
    names = [
        name for name, p in model.backbone.named_parameters() if decay.get(id(p)) and any(x in name for x in parts)
    ]
    assert names == []
    before = {name: p.detach().clone() for name, p in model.backbone.named_parameters() if p.requires_grad}
    losses = model.train_step(samples(detector), optim_wrapper)
    assert all(loss.isfinite() for loss in losses.values()), losses
    after = dict(model.backbone.named_parameters())
    assert [name for name, p in before.items() if torch.equal(p, after[name])] == []


@pytest.fixture
def double():
    """DINO makes tensors of the default type."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def results(model, detector):
    """Losses and detections of both images, in float64; outputs where mmdet computes part of the loss in float32."""
    model.double().train()
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm | torch.nn.Dropout):
            module.eval()
    data = model.data_preprocessor(samples(detector, torch.float64), True)
    torch.manual_seed(0)
    if detector in ('rtmdet', 'mask2former'):
        outputs = model(data['inputs'].double(), data['data_samples'], mode='tensor')
        found = {f'output {i} {level}': x for i, maps in enumerate(outputs) for level, x in enumerate(maps)}
    else:
        losses = model.loss(data['inputs'].double(), data['data_samples'])
        found = {name: torch.stack(value) if isinstance(value, list) else value for name, value in losses.items()}
    model.eval()
    if 'rcnn' in detector:
        model.roi_head.mask_head = None  # mmdet pastes masks in float32; their loss is above
    data = model.data_preprocessor(samples(detector), False)
    with torch.no_grad():
        predicted = model.predict(data['inputs'].double(), data['data_samples'], rescale=False)
    for i, sample in enumerate(predicted):
        assert len(sample.pred_instances)
        found |= {f'{key} {i}': sample.pred_instances[key] for key in ('scores', 'bboxes')}
    return found


@pytest.mark.parametrize(('detector', 'backbone'), [one if one == ('rtmdet', 'Swin') else slow(*one) for one in ALL])
@pytest.mark.usefixtures('double')
def test_with_layer_norm_a_detector_equals_that_of_mmdet(detector, backbone):
    models = []
    for upstream in (True, False):
        cfg = config_of(detector, backbone, upstream=upstream)
        if backbone != 'Swin' and not upstream:
            cfg.model.backbone.norm_cfg = dict(type='LN', eps=1e-6)
        if backbone == 'PVT':
            cfg.model.backbone.pretrain_img_size = (96, 128)  # TokenNorm resizes positions in float32
        test_cfg = cfg.model.test_cfg.get('rcnn', cfg.model.test_cfg)
        test_cfg.update(dict(score_thr=1e-6) if 'score_thr' in test_cfg else {})
        with DefaultScope.overwrite_default_scope('mmdet'):
            torch.manual_seed(0)
            models.append(MODELS.build(cfg.model))
    theirs, ours = models
    theirs.init_weights()
    randomize(theirs, 0.02)
    converted, _ = convert_detector(ours, theirs.state_dict(), 'mmdet')
    ours.load_state_dict(converted)
    expected = results(theirs, detector)
    for name, value in results(ours, detector).items():
        assert_near(name, value, expected[name], dtype=torch.float64)
