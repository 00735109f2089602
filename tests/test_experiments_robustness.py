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
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.structures import InstanceData
from mmpretrain.datasets.categories import IMAGENET_CATEGORIES
from mmpretrain.registry import MODELS as MMPRETRAIN_MODELS
from torch import nn

from experiments.robustness import corruptions as corruptions_module
from experiments.robustness.class_folders import class_labels
from experiments.robustness.corruptions import (
    CORRUPTIONS,
    SEVERITIES,
    CorruptImage,
    corrupt,
    image_seed,
)
from experiments.robustness.evaluation import CorruptedTest
from experiments.robustness.mce import (
    ALEXNET_ERRORS,
    corruption_errors,
    mean_performance,
    relative_corruption_errors,
    relative_performance,
)
from experiments.robustness.results import CLEAN, Results, digest
from tokennorm.config_paths import config as config_path
from tokennorm.datasets import make_shapes_dataset

ROOT = Path(__file__).resolve().parents[1]


def picture(height=48, width=64):
    """Colored cells, (height, width, 3) uint8."""
    cells = np.random.default_rng(0).integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
    return np.ascontiguousarray(cells.repeat(8, 0).repeat(8, 1)[:height, :width])


class TestCorruptions:
    @pytest.mark.parametrize('corruption', ['impulse_noise', 'fog', 'jpeg_compression'])
    def test_a_seed_says_everything(self, corruption):
        """Whatever numpy's global generator is at, and whatever was drawn before; that generator is left alone."""
        image = picture()
        np.random.seed(1)  # noqa: NPY002
        first = corrupt(image, corruption, 3, seed=5)
        np.random.seed(2)  # noqa: NPY002
        state = np.random.get_state()[1].copy()  # noqa: NPY002
        assert np.array_equal(first, corrupt(image, corruption, 3, seed=5))
        assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
        other = corrupt(image, corruption, 3, seed=6)
        assert np.array_equal(first, other) == (corruption == 'jpeg_compression')
        assert not np.array_equal(first, image)
        assert np.array_equal(image, picture()), 'the image itself was changed'

    def test_the_library_is_given_rgb(self):
        """Frost treats the colors differently, so that swapped channels would show."""
        bgr = picture()
        np.random.seed(5)  # noqa: NPY002
        of_rgb = imagecorruptions.corrupt(np.ascontiguousarray(bgr[..., ::-1]), 3, 'frost')
        np.random.seed(5)  # noqa: NPY002
        of_bgr = imagecorruptions.corrupt(bgr, 3, 'frost')
        assert np.array_equal(corrupt(bgr, 'frost', 3, seed=5), of_rgb[..., ::-1])
        assert not np.array_equal(of_bgr, of_rgb[..., ::-1])

    def test_seeds_are_those_of_image_corruption_and_severity(self):
        seed = image_seed('/data/imagenet/val/n01440764/1.JPEG', 'fog', 3)
        assert seed == image_seed('D:\\val\\n01440764\\1.JPEG', 'fog', 3), 'where the data lies does not matter'
        others = [('n01440764/2.JPEG', 'fog', 3), ('x/1.JPEG', 'fog', 3), ('n01440764/1.JPEG', 'snow', 3)]
        others.append(('n01440764/1.JPEG', 'fog', 4))
        assert len({seed, *(image_seed(*other) for other in others)}) == 5
        assert seed == 1858648563, 'figures of different versions would be of different images'

    def test_the_step_of_a_pipeline(self):
        step = CorruptImage()
        assert np.array_equal(step(dict(img=picture(), img_path='a/b.png'))['img'], picture())
        step.cell = ('shot_noise', 2)
        expected = corrupt(picture(), 'shot_noise', 2, image_seed('a/b.png', 'shot_noise', 2))
        assert np.array_equal(step(dict(img=picture(), img_path='a/b.png'))['img'], expected)


class TestMeasures:
    errors = dict(fog={1: 20.0, 3: 40.0}, snow={1: 30.0, 3: 90.0})
    baseline = dict(fog={1: 50.0, 2: 1.0, 3: 70.0}, snow={1: 80.0, 2: 1.0, 3: 80.0})

    def test_corruption_error_is_a_ratio_of_sums(self):
        assert corruption_errors(self.errors, self.baseline) == dict(fog=100 * 60 / 120, snow=100 * 120 / 160)

    def test_relative_corruption_error_takes_the_clean_errors_off(self):
        relative = relative_corruption_errors(self.errors, 10.0, self.baseline, 40.0)
        assert relative == dict(fog=100 * (10 + 30) / (10 + 30), snow=100 * (20 + 80) / (40 + 40))

    def test_mean_performance_under_corruption(self):
        assert mean_performance(self.errors) == (30 + 60) / 2
        assert mean_performance(dict(fog={1: 10.0}, snow={1: 20.0, 2: 40.0})) == (10 + 30) / 2
        assert relative_performance(self.errors, 60.0) == 75

    def test_alexnet_is_the_published_one(self):
        published = [88.6, 89.4, 92.3, 82.0, 82.6, 78.6, 79.8, 86.7, 82.7, 81.9, 56.5, 85.3, 64.6, 71.8, 60.7]
        for corruption, expected in zip(CORRUPTIONS, published, strict=True):
            by_severity = ALEXNET_ERRORS[corruption]
            assert tuple(by_severity) == SEVERITIES
            assert abs(sum(by_severity.values()) / 5 - expected) <= 0.0501, corruption
        assert list(corruption_errors(ALEXNET_ERRORS, ALEXNET_ERRORS).values()) == pytest.approx([100] * 15)


class TestResults:
    settings = dict(checkpoint='a.pth', images=3, weights='1', model='2', pipeline='3', data='4', library='5')

    def test_results_of_something_else_are_not_continued(self, tmp_path):
        path = tmp_path / 'r.json'
        Results(path, self.settings).write()
        for name in ('weights', 'model', 'pipeline', 'data', 'library'):
            with pytest.raises(ValueError, match=rf'other {name} \(a.pth, 3 images\).*--out'):
                Results.resume(path, dict(self.settings, **{name: 'x'}))

    def test_digests_change_with_every_value(self):
        weights = dict(a=torch.zeros(2), b=torch.tensor(1, dtype=torch.bfloat16))
        same = dict(b=torch.tensor(1, dtype=torch.bfloat16), a=torch.zeros(2))
        assert digest(weights) == digest(same)
        assert digest(weights) != digest(dict(weights, a=torch.tensor([0.0, 1e-6])))
        assert digest([1], 'x') != digest([2], 'x')


class TestClasses:
    def test_imagenet_goes_by_wordnet_ids_and_by_names(self):
        """Three of ImageNet-R's folders, and their labels in the order of ImageNet's ids."""
        ids = class_labels(['n01443537', 'n02102318', 'n12267677'], IMAGENET_CATEGORIES, '--data x')
        assert ids == dict(n01443537=1, n02102318=219, n12267677=988)
        names = {name: list(IMAGENET_CATEGORIES)[label] for name, label in ids.items()}
        assert names == dict(
            n01443537='goldfish, Carassius auratus',
            n02102318='cocker spaniel, English cocker spaniel, cocker',
            n12267677='acorn',
        )
        assert class_labels(['acorn'], IMAGENET_CATEGORIES, '--data x') == dict(acorn=988)


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
    with pytest.raises(SystemExit, match=r'Interrupted. The same command resumes'):
        run(arguments, tmp_path)
    run(arguments, tmp_path)
    snow, fog = ([(name, severity) for severity in (1, 3, 5)] for name in ('snow', 'fog'))
    assert evaluated == [CLEAN, *snow[:2], *snow[1:], *fog]
    results = json.loads((tmp_path / 'r.json').read_text())
    assert results['summary']['clean_error'] == 0
    assert results['summary']['errors'] == pytest.approx(dict(snow=100 * 4 / 9, fog=100 * 4 / 9))
    assert 'mCE' not in results['summary']
    assert results['cells']['fog 3']['accuracy/top1'] == pytest.approx(100 / 3)
    printed = capsys.readouterr().out
    assert 'mean error under corruption 44.44, not divided by any baseline' in printed
    assert 'means over 2 of the 15 corruptions and severities 1, 3, 5 only' in printed
    with pytest.raises(SystemExit, match=r'r.json has results of other data'):
        run([*arguments, '--images', 2], tmp_path)


def test_mce_against_another_model(classifier, colors, swapped, tmp_path, capsys):
    """A baseline that says red to everything is wrong on 4 of 6 images, clean or not."""
    base = tmp_path / 'base.pth'
    weights = {'head.fc.weight': torch.zeros(3, 3), 'head.fc.bias': torch.tensor([0.0, 0.0, 1.0])}
    torch.save(dict(state_dict=weights, meta=dict(dataset_meta=dict(classes=list(COLORS)))), base)
    run([classifier[0], base, *FOG_AND_SNOW, '--out', tmp_path / 'base.json'], tmp_path)
    arguments = [*classifier, *FOG_AND_SNOW, '--baseline', tmp_path / 'base.json', '--out', tmp_path / 'r.json']
    run(arguments, tmp_path)
    summary = json.loads((tmp_path / 'r.json').read_text())['summary']
    assert summary['mCE'] == pytest.approx(100 * (3 * 4) / (5 * 4))
    assert summary['CE'] == pytest.approx(dict(fog=60, snow=60))
    assert summary['relative_mCE'] is None, 'corruption adds nothing to the errors of the baseline'
    assert str(base) in summary['baseline']
    printed = capsys.readouterr().out
    assert f'mCE 60.0, relative mCE -; 100 is {base}' in printed
    with pytest.raises(SystemExit, match=r'base.json has other data'):
        run([*arguments, '--images', 3, '--out', tmp_path / 'fewer.json'], tmp_path)


def test_published_files_give_the_errors_of_the_same_corruptions(classifier, colors, swapped, tmp_path):
    """Files with the corruptions that the other run computes; it reads PNG, where ImageNet-C has JPEG."""
    for corruption in ('snow', 'fog'):
        for severity in (1, 3):
            for source in sorted(colors.glob('val/*/*.png')):
                file = tmp_path / 'c' / corruption / str(severity) / source.parent.name / source.name
                file.parent.mkdir(parents=True, exist_ok=True)
                image = cv2.imread(str(source))[:40, :40]  # as the config crops it
                cv2.imwrite(str(file), swap_red_and_blue(image, corruption, severity, 0))
    arguments = [*classifier, *FOG_AND_SNOW, '--severities', 1, 3, '--out']
    run([*arguments, tmp_path / 'fly.json'], tmp_path)
    arguments = [*arguments, tmp_path / 'files.json', '--published', tmp_path / 'c']
    run(arguments, tmp_path)
    fly, files = (json.loads((tmp_path / name).read_text()) for name in ('fly.json', 'files.json'))
    assert files['cells'] == fly['cells']
    assert files['summary'] == fly['summary']
    assert files['summary']['errors'] == pytest.approx(dict(snow=100 / 3, fog=100 / 3))
    with pytest.raises(SystemExit, match=r'fly.json has results of other library'):
        run([*arguments, '--out', tmp_path / 'fly.json'], tmp_path)


@pytest.mark.slow
def test_resnet_50_of_table_6_on_published_files(tmp_path, capsys):
    """mmpretrain's config with random weights, on generated folders of two ImageNet classes."""
    cfg = Config.fromfile(config_path('mmpretrain::resnet/resnet50_8xb32_in1k.py'))
    model = MMPRETRAIN_MODELS.build(dict(cfg.model, _scope_='mmpretrain'))
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'r50.pth')
    random = np.random.default_rng(0)
    for folder in ('val', *(f'c/{corruption}/{severity}' for corruption in ('fog', 'snow') for severity in SEVERITIES)):
        for name in ('n01440764', 'n01443537'):
            (tmp_path / folder / name).mkdir(parents=True)
            image = random.integers(0, 256, (224, 224, 3), dtype=np.uint8)
            cv2.imwrite(str(tmp_path / folder / name / 'ILSVRC2012_val_1.JPEG'), image)
    arguments = ['mmpretrain::resnet/resnet50_8xb32_in1k.py', tmp_path / 'r50.pth', '--data', tmp_path / 'val']
    options = ['--published', tmp_path / 'c', *FOG_AND_SNOW, '--baseline', 'alexnet', '--out', tmp_path / 'r.json']
    run([*arguments, *options], tmp_path)
    results = json.loads((tmp_path / 'r.json').read_text())
    summary = results['summary']
    for name in ('fog', 'snow'):
        sums = sum(100 - cell['accuracy/top1'] for key, cell in results['cells'].items() if key.startswith(name))
        assert summary['CE'][name] == pytest.approx(100 * sums / sum(ALEXNET_ERRORS[name].values()))
    assert summary['mCE'] == pytest.approx((summary['CE']['fog'] + summary['CE']['snow']) / 2)
    printed = capsys.readouterr().out
    assert 'mean error under corruption' in printed
    assert 'computed on the fly' not in printed


def test_a_subset_of_the_classes(classifier, colors, tmp_path, capsys):
    """An image that is most of all blue and next red is red where blue is not a class."""
    data = tmp_path / 'r'
    for name, color in dict(green=COLORS['green'], red=(200, 110, 120)).items():
        (data / name).mkdir(parents=True)
        cv2.imwrite(str(data / name / '0.png'), np.full((48, 48, 3), color, np.uint8))
    (data / 'README.txt').write_text('no class')
    names = tmp_path / 'names.txt'
    names.write_text('red\nblue\n')
    settings = {}
    for case, arguments in dict(
        all=['--data', data], subset=['--data', data, '--classes', data], file=['--data', colors, '--classes', names]
    ).items():
        run([*classifier, *arguments, '--corruptions', 'none', '--out', tmp_path / f'{case}.json'], tmp_path)
        file = json.loads((tmp_path / f'{case}.json').read_text())
        settings[case] = [file['summary']['clean_error'], file['settings']['images'], file['settings']['classes']]
    assert settings == dict(all=[50, 2, 3], subset=[0, 2, '2 of 3'], file=[0, 4, '2 of 3'])
    assert f'{data} has 2 of 3 classes; --classes {data} restricts' in capsys.readouterr().out


def test_real_corruptions_through_workers_and_their_sheet(classifier, tmp_path):
    arguments = [*classifier, '--corruptions', 'fog', 'impulse_noise', '--severities', 5, '--images', 3]
    for workers in (0, 1):
        run([*arguments, '--workers', workers, '--out', tmp_path / f'{workers}.json', '--show-dir', tmp_path], tmp_path)
    assert (tmp_path / '0.json').read_text() == (tmp_path / '1.json').read_text()
    assert cv2.imread(str(tmp_path / 'severity_5.png')).std() > 10


def test_classifiers_are_corrupted_after_resizing(classifier, detector, tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(corruptions_module, 'corrupt', lambda image, *_, **__: sizes.append(image.shape[:2]) or image)
    run([*classifier, '--corruptions', 'fog', '--severities', 1, '--images', 1], tmp_path / 'c')
    run([*detector, '--corruptions', 'fog', '--severities', 1, '--images', 1], tmp_path / 'd')
    assert sizes == [(40, 40), (64, 64)]


@pytest.fixture(scope='module')
def detector(tmp_path_factory):
    folder = tmp_path_factory.mktemp('detector')
    data = make_shapes_dataset(folder / 'shapes', num_train=1, num_val=4, image_size=64)
    base = ROOT / 'configs' / '_base_' / 'datasets' / 'shapes_detection.py'
    (folder / 'toy_detector.py').write_text(DETECTOR.format(base=base, data=data))
    torch.save(dict(state_dict=dict(weight=torch.zeros(1))), folder / 'toy.pth')
    return [str(folder / 'toy_detector.py'), str(folder / 'toy.pth')]


@pytest.mark.parametrize('images', [[], ['--images', 2]], ids=['all', 'two'])
def test_mean_performance_of_a_detector(images, detector, tmp_path, monkeypatch, capsys):
    """It finds all or, on images that are black, nothing; images that are left out do not count as missed."""
    dark_from = dict(fog=3, snow=5)
    monkeypatch.setattr(
        corruptions_module,
        'corrupt',
        lambda image, corruption, severity, seed: image * np.uint8(severity < dark_from[corruption]),
    )
    run([*detector, *FOG_AND_SNOW, *images], tmp_path)
    file = json.loads((tmp_path / 'work' / 'robustness.json').read_text())
    assert file['settings']['images'] == (2 if images else 4)
    assert file['summary']['bbox'] == dict(
        clean_AP=100, mPC=pytest.approx(60), rPC=pytest.approx(60), AP=dict(snow=80, fog=40)
    )
    assert 'mPC 60.00 bbox AP, rPC 60.0% of clean' in capsys.readouterr().out
