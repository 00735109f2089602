"""Figures of the DTN paper: every figure, on detectors and classifiers, and errors that say what to do."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config

from experiments.dtn_figures.attention import attention_distance, attention_places
from experiments.dtn_figures.loading import open_backbone, open_config, open_images, prepare
from experiments.dtn_figures.run import main
from tests.helpers.cases import fast_first, slow
from tests.helpers.scalars import write_scalars
from tokennorm.backbones.pvt import SpatialReductionAttention
from tokennorm.images.padding import image_sizes_of

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / 'configs' / 'demo'
CONFIG, CONTROL = (str(DEMO / f'retinanet_pvt-mini{norm}_fpn_shapes.py') for norm in ('-dtn-dpn', ''))
VIT = dict(type='tokennorm.ViT', arch=dict(embed_dims=32, depth=4, num_heads=4, mlp_ratio=2), patch_size=8)
SWIN = dict(embed_dims=(16, 32), depths=(2, 2), num_heads=(1, 2), mlp_ratios=(2, 2))
PVT_V2 = dict(SWIN, sr_ratios=(4, 1))
CLASSIFIERS = {
    'vit': dict(VIT, out_type='cls_token', token_norm_cfg=dict(type='DTN'), l_dtn=2),
    'swin': dict(type='tokennorm.Swin', arch=SWIN, window_size=3, out_type='avg_featmap'),
    'pvt_v2': dict(type='tokennorm.PVTv2', arch=PVT_V2, token_norm_cfg=dict(type='DTN')),
    'rms': dict(type='tokennorm.PVTv2', arch=PVT_V2, token_norm_cfg=dict(type='RMSNorm')),
    'resnet': dict(type='ResNet', depth=18),
    'timm': dict(
        type='tokennorm.TimmBackbone',
        model_name='vit_tiny_patch16_224',
        timm_args=dict(embed_dim=32, depth=2, num_heads=4, dynamic_img_size=True),
        token_norm_cfg=dict(type='DTN'),
    ),
}


def analyze(*arguments):
    main([str(argument) for argument in arguments])


@pytest.fixture(scope='module')
def images(demo_data):
    return demo_data / 'images' / 'val'


@pytest.fixture(scope='module')
def checkpoints(tmp_path_factory):
    """Checkpoints of the demo's detector and its control, with random weights, in the layout of a training run."""
    folder = tmp_path_factory.mktemp('checkpoints')
    for name, config in (('dtn', CONFIG), ('ln', CONTROL)):
        backbone = open_backbone(open_config(Path(config)), None)
        torch.manual_seed(1)
        state_dict = {
            f'backbone.{key}': value + 0.1 * torch.randn(value.shape) for key, value in backbone.state_dict().items()
        }
        torch.save(dict(state_dict=state_dict, meta=dict()), folder / f'{name}.pth')
    return folder


@pytest.fixture(scope='module')
def classifiers(tmp_path_factory, images):
    """Configs of mmpretrain."""
    folder = tmp_path_factory.mktemp('classifiers')
    for name, backbone in CLASSIFIERS.items():
        pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(48, 48)), dict(type='PackInputs')]
        Config(
            dict(
                default_scope='mmpretrain',
                data_preprocessor=dict(num_classes=2, mean=[120.0] * 3, std=[60.0] * 3, to_rgb=True),
                model=dict(type='ImageClassifier', backbone=backbone),
                val_dataloader=dict(
                    dataset=dict(type='CustomDataset', data_root=str(images), with_label=False, pipeline=pipeline)
                ),
            )
        ).dump(folder / f'{name}.py')
    return folder


def check_picture(path, min_colors=50):
    picture = cv2.imread(str(path))
    assert min(picture.shape[:2]) > 250
    assert len(np.unique(picture.astype(int) @ (1, 256, 65536))) > min_colors


FIGURES = ('magnitude', 'attention-distance', 'variation', 'directions')


@pytest.mark.parametrize('figure', fast_first(FIGURES, 'directions'))
def test_a_detector_against_its_control(figure, demo_data, checkpoints, tmp_path, capsys):
    out = tmp_path / 'deep' / f'{figure}.png'
    analyze(
        figure, CONFIG, checkpoints / 'dtn.pth', '--against', CONTROL, checkpoints / 'ln.pth', '--num-images', 2,
        '--out', out, '--cfg-options', f'val_dataloader.dataset.data_root={demo_data}',
    )  # fmt: skip
    check_picture(out)
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == str(out)
    if figure == 'attention-distance':
        assert '/dtn.pth: mean attention distance of each head, in tokens, on 2 images' in printed
        attn = SpatialReductionAttention(8, 1, sr_ratio=8, norm_cfg=dict(type='LN'))
        places = attention_places(attn, (32, 32))  # of images of 128 x 128
        uniform = attention_distance(torch.full((1, 1, 1024, 16), 1 / 16), *places).mean()
        assert f'\n  stages.0.blocks.0 (stride 4, uniform {uniform:.2f}): ' in printed


@pytest.mark.parametrize(
    ('name', 'figure'),
    [
        ('vit', 'attention-distance'),
        *(slow(name, 'attention-distance') for name in ('swin', 'pvt_v2')),
        ('timm', 'variation'),
        *(slow('vit', name) for name in ('magnitude', 'variation')),
        *(slow('timm', name) for name in ('magnitude', 'directions')),
    ],
)
def test_classifiers(name, figure, classifiers, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    analyze(figure, classifiers / f'{name}.py', '--images', images, '--num-images', 1)
    check_picture(tmp_path / 'work_dirs' / 'dtn_figures' / f'{name}_{figure}.png')


@pytest.mark.parametrize('figure', ['lambda', 'patch-scales', slow('positions')])
def test_what_needs_no_images(figure, checkpoints, tmp_path):
    few = ['--layers', 1, 5] if figure == 'positions' else []
    analyze(figure, CONFIG, checkpoints / 'dtn.pth', *few, '--out', tmp_path / 'a.png')
    check_picture(tmp_path / 'a.png', min_colors=20)


def test_lambda_of_a_training(tmp_path):
    entries = [
        {f'lambda/stages.{i}.norm1.{kind}.{which}': 0.5 + (step + i) / 40 for kind in ('mean', 'var') for i in range(3)
         for which in ('mean', 'min', 'max')} | dict(step=step)
        for step in range(3)
    ]  # fmt: skip
    folder = write_scalars(tmp_path / 'work', '20260101', entries).parent
    analyze('lambda', tmp_path / 'work', '--out', tmp_path / 'a.png')
    check_picture(tmp_path / 'a.png')
    with pytest.raises(SystemExit, match=r'error: .*vis_data has no lambda in .*tokennorm.LambdaHook'):
        analyze('lambda', folder, '--out', tmp_path / 'b.png')


def test_backbone_gets_the_weights_and_images_of_the_detector(images, checkpoints):
    """Resized and normalized as in testing, at the size of the image, padded to whole strides and noted so."""
    cfg = open_config(Path(CONFIG), {'val_dataloader.dataset.pipeline.1.scale': (80, 80)})
    backbone = open_backbone(cfg, str(checkpoints / 'dtn.pth'))
    saved = torch.load(checkpoints / 'dtn.pth')['state_dict']
    assert all(torch.equal(value, saved[f'backbone.{key}']) for key, value in backbone.state_dict().items())
    found = open_images(cfg, images, 2)
    paths = [image.data['data_samples'][0].img_path for image in found]
    assert [Path(path).name for path in paths] == ['000001.jpg', '000003.jpg']
    assert found[0].pixels.shape == (80, 80, 3)
    inputs = prepare(cfg, found[0])
    assert inputs.shape == (1, 3, 96, 96)
    assert image_sizes_of(inputs).tolist() == [[80, 80]]
    mean, std = (torch.tensor(cfg.model.data_preprocessor[key])[:, None, None] for key in ('mean', 'std'))
    torch.testing.assert_close(
        inputs[0, :, :80, :80] * std + mean, torch.from_numpy(found[0].pixels.copy()).permute(2, 0, 1).float()
    )


def test_wrong_arguments_say_what_to_do(checkpoints, classifiers, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dtn, ln = checkpoints / 'dtn.pth', checkpoints / 'ln.pth'
    for arguments, message in [
        (('lambda', CONTROL, ln), 'ln.pth has no DTN'),
        (('patch-scales', CONTROL), 'no DualPatchEmbed'),
        (('magnitude', CONTROL, dtn, '--images', images), r'(?s)dtn.pth does not fit PVT.*unexpected'),
        (('magnitude', CONFIG, dtn), r'data/shapes/annotations/val.json\); name images with --images'),
        (('magnitude', CONFIG, dtn, '--images', images, '--layers', '0', '5'), '--layers 0 5: must be between 0 and 4'),
        (('variation', classifiers / 'rms.py', '--images', images), 'the mean of RMSNorm is not known; LN, IN'),
        (('magnitude', classifiers / 'resnet.py', '--images', images), 'ResNet is not supported'),
    ]:
        with pytest.raises(SystemExit, match='error: .*' + message if '(?s)' not in message else message):
            analyze(*arguments)
    assert list((tmp_path / 'work_dirs').rglob('*.png')) == []
