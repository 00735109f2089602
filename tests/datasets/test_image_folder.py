"""Classifiers on folders of classes: what the config becomes, and layouts that are refused with what to do."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from tokennorm.datasets.image_folder import find_image_folder

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
IMAGENET = CONFIGS / 'imagenet' / 'pvt-tiny-dtn_8xb128_in1k.py'


def make_folder(root, classes=('ant', 'bee', 'cat'), splits=('train', 'val'), images=2):
    for split in splits:
        for name in classes:
            for i in range(images):
                path = root / split / name / f'{i}.jpg'
                path.parent.mkdir(parents=True, exist_ok=True)
                cv2.imwrite(str(path), np.full((32, 32, 3), 40 * i, np.uint8))
    return root


@pytest.fixture
def planned():
    """A function that points the config of a classifier at a folder. Only here mmengine and torch are needed."""
    from mmengine import Config

    from tokennorm.plan.data import limit_topk, use_image_folder

    def plan(splits, classes):
        cfg = Config.fromfile(IMAGENET)
        use_image_folder(cfg, splits)
        limit_topk(cfg, classes)
        return cfg

    return plan


def test_a_config_takes_the_data_and_its_classes(tmp_path, planned):
    root = make_folder(tmp_path / 'pets')
    (root / 'train' / 'ant' / 'notes.txt').write_text('no image')
    (root / 'train' / 'ant' / '._0.jpg').write_text('hidden')
    (root / 'train' / 'ant' / '1.HEIC').write_text('not read')
    assert find_image_folder(root)['train'].summary('train').endswith('; files of formats that are not read: 1 .heic')
    splits = find_image_folder(root)
    assert list(splits) == ['train', 'val']
    assert all(split.counts == dict(ant=2, bee=2, cat=2) for split in splits.values())
    cfg = planned(splits, 3)
    assert cfg.model.head.num_classes == cfg.data_preprocessor.num_classes == 3
    for name, folder in (('train', 'train'), ('val', 'val'), ('test', 'val')):
        dataset = cfg[f'{name}_dataloader'].dataset
        assert (dataset.type, dataset.data_prefix) == ('CustomDataset', str(root / folder))
        assert dataset.metainfo.classes == ('ant', 'bee', 'cat')
        assert 'split' not in dataset
    assert len(cfg.train_dataloader.dataset.pipeline) == 6  # as in the config
    assert cfg.val_evaluator.topk == cfg.test_evaluator.topk == (1,)


def test_five_classes_have_a_top_5_and_a_test_split_is_used(tmp_path, planned):
    root = make_folder(tmp_path, 'abcde', ('Train', 'Valid', 'test'))
    cfg = planned(find_image_folder(root), 5)
    assert cfg.val_evaluator.topk == (1, 5)
    assert cfg.val_dataloader.dataset.data_prefix == str(root / 'Valid')
    assert cfg.test_dataloader.dataset.data_prefix == str(root / 'test')


def test_layouts_that_are_refused(tmp_path):
    cases = {
        tmp_path / 'nowhere': 'nowhere not found',
        make_folder(tmp_path / 'single', splits=('.',)): 'no folder train: put the images into .* ant, bee, cat',
        make_folder(tmp_path / 'one', splits=('train',)): 'no folder val',
        make_folder(tmp_path / 'flat', classes=('.',)): 'flat/train has no class folders.*It has 0.jpg, 1.jpg',
        make_folder(tmp_path / 'ants', classes=('ant',)): 'only one class folder, ant',
    }
    for folder, message in cases.items():
        with pytest.raises((OSError, ValueError), match=message):
            find_image_folder(folder)


def test_classes_must_be_those_of_every_split_and_have_images(tmp_path):
    root = make_folder(tmp_path / 'a')
    make_folder(root, classes=('dog',), splits=('val',))
    with pytest.raises(ValueError, match=r'only one of .*a/train and .*a/val has the classes dog: '):
        find_image_folder(root)
    make_folder(root, classes=('dog', 'emu'), splits=('train',))
    with pytest.raises(ValueError, match=r'only one of .*a/train and .*a/val has the classes emu: '):
        find_image_folder(root)
    make_folder(root, classes=('emu',), splits=('val',), images=1)
    (root / 'val' / 'emu' / '0.jpg').rename(root / 'val' / 'emu' / '0.txt')
    with pytest.raises(ValueError, match=r'a/val has 1 folders without images \(emu\)'):
        find_image_folder(root)
    (root / 'train' / 'ant' / '.ipynb_checkpoints').mkdir()
    with pytest.raises(ValueError, match=r'a/train/ant/.ipynb_checkpoints is not a class; remove it'):
        find_image_folder(root)
