"""Data of a study: parts of downloaded datasets, and two iterations of each stage of the study on real images."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from experiments.study.data import prepare_data, take_classes
from experiments.study.pieces import run_piece
from experiments.study.plan import Run, load_study
from experiments.study.records import read_record
from tests.helpers.cases import slow

CONFIG = Path(__file__).resolve().parents[1] / 'projects' / 'experiments' / 'study' / 'configs' / 'real.py'


def make_source(folder, classes):
    """A small image folder of noise, two images of 64 x 64 pixels per class and split."""
    rng = np.random.default_rng(0)
    for split in ('train', 'val'):
        for name in classes:
            (folder / split / name).mkdir(parents=True)
            for i in range(2):
                cv2.imwrite(str(folder / split / name / f'{i}.jpg'), rng.integers(0, 255, (64, 64, 3), np.uint8))


def test_classes_are_linked_and_checked(tmp_path):
    make_source(tmp_path / 'all', ['a', 'b', 'c'])
    data = {tmp_path / 'two': dict(maker='classes', source='all', classes=['a', 'c'])}
    for _ in range(2):  # the second time there is nothing to do
        prepare_data(data, data_from=tmp_path)
        assert sorted(path.name for path in (tmp_path / 'two' / 'val').iterdir()) == ['a', 'c']
        assert (tmp_path / 'two' / 'val' / 'c' / '1.jpg').is_file()
    with pytest.raises(FileNotFoundError, match=r'all/train lacks 1 of 2 classes \(d\): .* with --data-from'):
        take_classes(tmp_path / 'other', tmp_path / 'all', ['a', 'd'])
    with pytest.raises(ValueError, match=r'two/train also has other classes \(c\); remove that folder'):
        take_classes(tmp_path / 'two', tmp_path / 'all', ['a'])


def test_a_coco_folder_is_linked_and_checked(tmp_path):
    data = {tmp_path / 'there': dict(maker='coco', source='cells')}
    with pytest.raises(FileNotFoundError, match=r'cells/images was not found: .* --data-from'):
        prepare_data(data, data_from=tmp_path)
    for name in ('images/1.jpg', 'annotations/train.json', 'annotations/val.json'):
        path = tmp_path / 'cells' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for _ in range(2):
        prepare_data(data, data_from=tmp_path)
        assert (tmp_path / 'there' / 'images' / '1.jpg').is_file()
    (tmp_path / 'empty').mkdir()
    with pytest.raises(ValueError, match='empty exists and is not'):
        prepare_data({tmp_path / 'empty': dict(maker='coco', source='cells')}, data_from=tmp_path)


@pytest.mark.parametrize(
    ('stage', 'arm'), [('pvt_mini', 'DTN+DPN eps 1'), slow('vit_p8', 'LN+DPN'), ('vit_p16', 'DTN')]
)
def test_two_iterations_on_an_image_folder(tmp_path, monkeypatch, stage, arm):
    monkeypatch.chdir(tmp_path)
    study = load_study(CONFIG, tmp_path / 'runs', dry=True)
    folder, settings = next(iter(study.data.items()))
    make_source(tmp_path / 'downloaded' / 'tiny_imagenet100', settings['classes'])
    prepare_data({folder: settings}, 'downloaded')
    run_piece(study, Run(stage, arm, 0), minutes=1)
    record = read_record(study.folder(Run(stage, arm, 0)))
    assert record['finished']
    assert record['train_images'] == 4
    assert 0 <= record['curve']['1']['accuracy/top1'] <= 100


def make_cells(folder):
    """A COCO folder of four images of noise with one box of each of BCCD's classes."""
    rng = np.random.default_rng(0)
    (folder / 'images').mkdir(parents=True)
    (folder / 'annotations').mkdir()
    categories = [dict(id=i, name=name) for i, name in enumerate(('RBC', 'WBC', 'Platelets'))]
    images = [dict(id=i, file_name=f'{i}.jpg', width=320, height=240) for i in range(4)]
    boxes = [
        dict(id=9 * i + j + 1, image_id=i, category_id=j, bbox=[20 + 80 * j, 60, 60, 50], area=3000, iscrowd=0)
        for i in range(4)
        for j in range(3)
    ]
    for image in images:
        cv2.imwrite(str(folder / 'images' / image['file_name']), rng.integers(0, 255, (240, 320, 3), np.uint8))
    for split in ('train', 'val'):
        content = dict(images=images, annotations=boxes, categories=categories)
        (folder / 'annotations' / f'{split}.json').write_text(json.dumps(content))


def test_a_detector_with_dtn_begins_with_the_weights_of_ln(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = load_study(CONFIG, tmp_path / 'runs', dry=True)
    make_source(tmp_path / 'data' / 'tiny_imagenet100', study.data['data/study_tiny_imagenet40']['classes'])
    for name in ('bccd', 'nuclei'):
        make_cells(tmp_path / 'data' / name)
    prepare_data(study.data)
    run = Run('bccd', 'DTN from LN', 0)
    run_piece(study, study.before(run), minutes=1)
    run_piece(study, run, minutes=1)
    record = read_record(study.folder(run))
    assert (record['finished'], record['train_images']) == (True, 4)
    weights = torch.load(study.folder(run) / 'weights.pth', weights_only=False)['state_dict']
    logits = torch.cat([value for name, value in weights.items() if name.endswith('_logit')])
    assert logits.min() > 7, 'lambda is not near 1 after two iterations'
