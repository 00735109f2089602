"""Corruptions, what errors under them come to, and the tool on a toy classifier and a toy detector."""

import json
import runpy
from pathlib import Path

import cv2
import imagecorruptions
import numpy as np
import pytest
import torch
from mmdet.registry import MODELS as MMDET_MODELS
from mmengine.model import BaseModel
from mmengine.structures import InstanceData
from mmpretrain.registry import MODELS as MMPRETRAIN_MODELS
from torch import nn

from experiments.robustness import corruptions as corruptions_module
from experiments.robustness.corruptions import CORRUPTIONS, SEVERITIES, corrupt, image_seed
from experiments.robustness.evaluation import CorruptedTest
from experiments.robustness.mce import (
    ALEXNET_ERRORS,
    corruption_errors,
    mean_performance,
    relative_corruption_errors,
    relative_performance,
)
from experiments.robustness.results import CLEAN
from experiments.shapes import make_shapes_dataset

ROOT = Path(__file__).resolve().parents[2]


def picture(height=48, width=64):
    """Colored cells, (height, width, 3) uint8."""
    cells = np.random.default_rng(0).integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
    return np.ascontiguousarray(cells.repeat(8, 0).repeat(8, 1)[:height, :width])


@pytest.mark.parametrize('corruption', ['impulse_noise', 'jpeg_compression'])
def test_a_seed_determines_the_corrupted_image(corruption):
    """Whatever numpy's global generator is at, which is left alone."""
    image = picture()
    np.random.seed(1)  # noqa: NPY002
    first = corrupt(image, corruption, 3, seed=5)
    np.random.seed(2)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert np.array_equal(first, corrupt(image, corruption, 3, seed=5))
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    assert np.array_equal(first, corrupt(image, corruption, 3, seed=6)) == (corruption == 'jpeg_compression')
    assert np.array_equal(image, picture()), 'the image itself was changed'


def test_imagecorruptions_gets_rgb():
    """Frost treats the colors differently, so that swapped channels would show."""
    bgr = picture()
    np.random.seed(5)  # noqa: NPY002
    of_rgb = imagecorruptions.corrupt(np.ascontiguousarray(bgr[..., ::-1]), 3, 'frost')
    assert np.array_equal(corrupt(bgr, 'frost', 3, seed=5), of_rgb[..., ::-1])


def test_seeds_follow_image_corruption_and_severity():
    seed = image_seed('/data/imagenet/val/n01440764/1.JPEG', 'fog', 3)
    assert seed == image_seed('D:\\val\\n01440764\\1.JPEG', 'fog', 3) == 1858648563
    others = [('n01440764/2.JPEG', 'fog', 3), ('n01440764/1.JPEG', 'snow', 3), ('n01440764/1.JPEG', 'fog', 4)]
    assert len({seed, *(image_seed(*other) for other in others)}) == 4


def test_measures_by_hand():
    errors = dict(fog={1: 20.0, 3: 40.0}, snow={1: 30.0, 3: 90.0})
    baseline = dict(fog={1: 50.0, 2: 1.0, 3: 70.0}, snow={1: 80.0, 2: 1.0, 3: 80.0})
    assert corruption_errors(errors, baseline) == dict(fog=100 * 60 / 120, snow=100 * 120 / 160)
    relative = relative_corruption_errors(errors, 10.0, baseline, 40.0)
    assert relative == dict(fog=100 * (10 + 30) / (10 + 30), snow=100 * (20 + 80) / (40 + 40))
    assert mean_performance(errors) == (30 + 60) / 2
    assert mean_performance(dict(fog={1: 10.0}, snow={1: 20.0, 2: 40.0})) == (10 + 30) / 2
    assert relative_performance(errors, 60.0) == 75


def test_errors_of_alexnet_are_the_published_ones():
    published = [88.6, 89.4, 92.3, 82.0, 82.6, 78.6, 79.8, 86.7, 82.7, 81.9, 56.5, 85.3, 64.6, 71.8, 60.7]
    for corruption, expected in zip(CORRUPTIONS, published, strict=True):
        by_severity = ALEXNET_ERRORS[corruption]
        assert tuple(by_severity) == SEVERITIES
        assert abs(sum(by_severity.values()) / 5 - expected) <= 0.0501, corruption


# ---- the tool ----


@MMPRETRAIN_MODELS.register_module(force=True)
class MeanColor(nn.Module):
    """(B, 3, H, W) -> the mean of each channel, (B, 3): with the identity as its head, the brightest is the answer."""

    def forward(self, x):
        return (x.mean((2, 3)),)


@MMDET_MODELS.register_module(force=True)
class SeesInTheLight(BaseModel):
    """Finds exactly what is there, on images that are not black."""

    def __init__(self, data_preprocessor):
        super().__init__(data_preprocessor)
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, inputs, data_samples, mode):
        for image, sample in zip(inputs, data_samples, strict=True):
            found = InstanceData(bboxes=sample.gt_instances.bboxes, labels=sample.gt_instances.labels)
            found.scores = torch.ones(len(found.labels))
            sample.pred_instances = found[found.scores > (0 if image.any() else 1)]
        return data_samples


CLASSIFIER = """
default_scope = 'mmpretrain'
model = dict(
    type='ImageClassifier',
    backbone=dict(type='MeanColor'),
    head=dict(type='LinearClsHead', num_classes=3, in_channels=3),
    data_preprocessor=dict(mean=[0, 0, 0], std=[1, 1, 1], to_rgb=True),
)
test_dataloader = dict(
    batch_size=2, num_workers=1, persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='CustomDataset', data_root='{data}', serialize_data=False,
        pipeline=[dict(type='LoadImageFromFile'), dict(type='CenterCrop', crop_size=40), dict(type='PackInputs')],
    ),
)
test_evaluator = dict(type='Accuracy', topk=(1, 5))
test_cfg = dict()
"""
DETECTOR = """
_base_ = '{base}'
default_scope = 'mmdet'
model = dict(type='SeesInTheLight', data_preprocessor=dict(type='DetDataPreprocessor'))
train_dataloader = val_dataloader = val_evaluator = None
test_dataloader = dict(dataset=dict(data_root='{data}', serialize_data=False))
test_evaluator = dict(ann_file='{data}/annotations/val.json')
test_cfg = dict(type='TestLoop')
"""
COLORS = dict(blue=(190, 90, 80), green=(120, 150, 60), red=(60, 130, 160))  # BGR


@pytest.fixture(scope='module')
def colors(tmp_path_factory):
    """Two images of each color in DIR/val; green is what red's and blue's have next to most."""
    root = tmp_path_factory.mktemp('colors')
    for name, color in COLORS.items():
        (root / 'val' / name).mkdir(parents=True)
        for i in range(2):
            cv2.imwrite(str(root / 'val' / name / f'{i}.png'), np.full((48, 48 + i, 3), color, np.uint8))
    return root


@pytest.fixture(scope='module')
def classifier(colors, tmp_path_factory):
    """A config, and a checkpoint that answers with the brightest channel of RGB."""
    folder = tmp_path_factory.mktemp('classifier')
    (folder / 'toy_classifier.py').write_text(CLASSIFIER.format(data=colors / 'val'))
    weights = {'head.fc.weight': torch.eye(3).flip(0), 'head.fc.bias': torch.zeros(3)}  # blue, green, red of RGB
    torch.save(dict(state_dict=weights, meta=dict(dataset_meta=dict(classes=list(COLORS)))), folder / 'toy.pth')
    return [str(folder / 'toy_classifier.py'), str(folder / 'toy.pth')]


def run(arguments, tmp_path):
    main = runpy.run_path(str(ROOT / 'projects' / 'experiments' / 'robustness' / 'run.py'))['main']
    main([*map(str, arguments[:2]), '--workers', '0', '--work-dir', str(tmp_path / 'work'), *map(str, arguments[2:])])


def swap_red_and_blue(image, corruption, severity, seed):
    """Severities from 3 on take blue for red and red for blue; green stays."""
    return np.ascontiguousarray(image[..., ::-1]) if severity >= 3 else image


@pytest.fixture
def swapped(monkeypatch):
    monkeypatch.setattr(corruptions_module, 'corrupt', swap_red_and_blue)


FOG_AND_SNOW = ['--corruptions', 'fog', 'snow']


def test_errors_of_a_classifier_also_after_an_interruption(classifier, swapped, tmp_path, monkeypatch, capsys):
    """Within the third cell; what was done is not done again."""
    evaluated = []
    original = CorruptedTest.run

    def counted(self, cell):
        evaluated.append(cell)
        if len(evaluated) == 3:
            raise KeyboardInterrupt
        return original(self, cell)

    monkeypatch.setattr(CorruptedTest, 'run', counted)
    arguments = [*classifier, *FOG_AND_SNOW, '--severities', 1, 3, 5, '--out', tmp_path / 'r.json']
    with pytest.raises(SystemExit, match='130'):
        run(arguments, tmp_path)
    assert 'Interrupted. The same command resumes' in capsys.readouterr().err
    run(arguments, tmp_path)
    snow, fog = ([(name, severity) for severity in (1, 3, 5)] for name in ('snow', 'fog'))
    assert evaluated == [CLEAN, *snow[:2], *snow[1:], *fog]
    results = json.loads((tmp_path / 'r.json').read_text())
    assert results['summary']['clean_error'] == 0
    assert results['summary']['errors'] == pytest.approx(dict(snow=100 * 4 / 9, fog=100 * 4 / 9))
    assert 'mCE' not in results['summary']
    assert results['cells']['fog 3']['accuracy/top1'] == pytest.approx(100 / 3)
    assert 'mean error under corruption 44.44, not divided by any baseline' in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r'r.json has results of other data'):
        run([*arguments, '--images', 2], tmp_path)


def test_published_files_give_the_errors_of_the_same_corruptions(classifier, colors, swapped, tmp_path):
    for severity in (1, 3):
        for source in sorted(colors.glob('val/*/*.png')):
            file = tmp_path / 'c' / 'fog' / str(severity) / source.parent.name / source.name
            file.parent.mkdir(parents=True, exist_ok=True)
            image = cv2.imread(str(source))[:40, :40]  # as the config crops it
            cv2.imwrite(str(file), swap_red_and_blue(image, 'fog', severity, 0))
    arguments = [*classifier, '--corruptions', 'fog', '--severities', 1, 3, '--out']
    run([*arguments, tmp_path / 'fly.json'], tmp_path)
    run([*arguments, tmp_path / 'files.json', '--published', tmp_path / 'c'], tmp_path)
    fly, files = (json.loads((tmp_path / name).read_text())['cells'] for name in ('fly.json', 'files.json'))
    assert files == fly


@pytest.fixture(scope='module')
def detector(tmp_path_factory):
    folder = tmp_path_factory.mktemp('detector')
    data = make_shapes_dataset(folder / 'shapes', num_train=1, num_val=4, image_size=64)
    base = ROOT / 'configs' / '_base_' / 'datasets' / 'shapes_detection.py'
    (folder / 'toy_detector.py').write_text(DETECTOR.format(base=base, data=data))
    torch.save(dict(state_dict=dict(weight=torch.zeros(1))), folder / 'toy.pth')
    return [str(folder / 'toy_detector.py'), str(folder / 'toy.pth')]


def test_mean_performance_of_a_detector(detector, tmp_path, monkeypatch, capsys):
    """It finds all or, on images that are black, nothing; images that are left out do not count as missed."""
    dark_from = dict(fog=3, snow=5)
    monkeypatch.setattr(
        corruptions_module,
        'corrupt',
        lambda image, corruption, severity, seed: image * np.uint8(severity < dark_from[corruption]),
    )
    run([*detector, *FOG_AND_SNOW, '--images', 2], tmp_path)
    assert not list((tmp_path / 'work').glob('*.py'))  # the config of a training run there stays
    file = json.loads((tmp_path / 'work' / 'robustness.json').read_text())
    assert file['settings']['images'] == 2
    assert file['summary']['bbox'] == dict(
        clean_AP=100, mPC=pytest.approx(60), rPC=pytest.approx(60), AP=dict(snow=80, fog=40)
    )
    assert 'mPC 60.00 bbox AP, rPC 60.0% of clean' in capsys.readouterr().out
