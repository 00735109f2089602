"""One detector, one answer: `test`, `predict` and `Detector` find the same on images of several sizes, in batches."""

import json
import pickle

import cv2
import numpy as np
import pytest
from mmengine.dataset import DefaultSampler
from torch.utils.data import SequentialSampler

import tokennorm
from tests.helpers.commands import tool
from tests.helpers.trained import CONFIG, options
from tokennorm.evaluation.batches import SameSizeBatchSampler

SIZES = [(64, 48), (48, 64), (64, 64), (48, 64), (100, 40), (64, 48), (48, 64)]  # width, height
FEW = {'model.test_cfg.score_thr': 0.0, 'model.test_cfg.max_per_img': 5}


class Data:
    def __init__(self, infos):
        self.infos = infos

    def __len__(self):
        return len(self.infos)

    def get_data_info(self, index):
        return self.infos[index]


def test_batches_have_images_of_one_size():
    dataset = Data([dict(width=w, height=h) for w, h in SIZES])
    sampler = SequentialSampler(dataset)
    sampler.dataset = dataset
    batches = SameSizeBatchSampler(sampler, 2)
    assert list(batches) == [[0, 5], [1, 3], [6], [2], [4]]
    assert len(batches) == 5
    assert list(SameSizeBatchSampler(sampler, 1)) == [[i] for i in range(7)]  # the order that `test --out` promises
    dataset.cumulative_sizes = [5, 7]  # two datasets of a concatenation, one after the other
    assert list(SameSizeBatchSampler(sampler, 2)) == [[0], [1, 3], [2], [4], [5], [6]]
    del dataset.cumulative_sizes
    dataset.infos = [{}, {}, {}]
    assert list(SameSizeBatchSampler(sampler, 2)) == [[0], [1], [2]]


def test_two_ranks_evaluate_each_image_once(monkeypatch):
    dataset, ranks = Data([dict(width=width, height=1) for width in (1, 1, 2, 2, 1)]), []
    for rank in (0, 1):  # the second one has image 0 as its third, so that both have as many
        monkeypatch.setattr('mmengine.dataset.sampler.get_dist_info', lambda rank=rank: (rank, 2))
        batches = SameSizeBatchSampler(DefaultSampler(dataset, shuffle=False), 2)
        ranks.append([index for batch in batches for index in batch])
    collected = [index for pair in zip(*ranks, strict=True) for index in pair]
    assert sorted(collected[:5]) == [0, 1, 2, 3, 4]  # mmengine cuts off the rest


@pytest.fixture(scope='module')
def data(demo_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp('sizes')
    (folder / 'images' / 'val').mkdir(parents=True)
    (folder / 'annotations').mkdir()
    content = json.loads((demo_data / 'annotations' / 'val.json').read_text())
    image = cv2.imread(str(next((demo_data / 'images' / 'val').iterdir())))
    content.update(images=[], annotations=[])
    for i, size in enumerate(SIZES):
        name = f'{i}.png'
        cv2.imwrite(str(folder / 'images' / 'val' / name), cv2.resize(image, size)[:, :: -1 if i % 2 else 1])
        content['images'].append(dict(id=i, file_name=name, width=size[0], height=size[1]))
        entry = dict(id=i + 1, image_id=i, category_id=content['categories'][0]['id'], iscrowd=0)
        content['annotations'].append(entry | dict(bbox=[5, 5, 20, 20], area=400))
    (folder / 'annotations' / 'val.json').write_text(json.dumps(content))
    return folder


def test_evaluation_and_prediction_agree(data, demo_trained, tmp_path):
    """Scores to 1e-4, boxes to 0.02 pixels, with batches of 4 against single images."""
    pickled = tmp_path / 'predictions.pkl'
    loader = {'test_dataloader.batch_size': 4}
    words = [CONFIG, str(demo_trained), '--work-dir', str(tmp_path / 'test'), '--out', str(pickled)]
    tool('test')([*words, '--cfg-options', *options(data, **loader, **FEW)])
    dumped = pickle.loads(pickled.read_bytes())
    assert [one['img_id'] for one in dumped] == list(range(len(SIZES)))  # mmdet's tools match by the place
    tested = {one['img_id']: one['pred_instances'] for one in dumped}

    few = ['--cfg-options', *(f'{key}={value}' for key, value in FEW.items())]
    images = str(data / 'images' / 'val')
    tool('predict')([str(demo_trained), images, '--out', str(tmp_path / 'out'), '--batch-size', '4', *few])
    content = json.loads((tmp_path / 'out' / 'detections.json').read_text())
    assert [image['file_name'] for image in content['images']] == [f'{i}.png' for i in range(len(SIZES))]

    detector = tokennorm.Detector(demo_trained, device='cpu', options=FEW)
    for i, image in enumerate(content['images']):
        found = detector(data / 'images' / 'val' / image['file_name'], 0.0)
        predicted = [one for one in content['annotations'] if one['image_id'] == image['id']]
        assert len(found) == len(predicted) == len(tested[i]['scores']) == 5
        np.testing.assert_allclose([one['score'] for one in predicted], found.scores, atol=1e-4)
        np.testing.assert_allclose(tested[i]['scores'], found.scores, atol=1e-4)
        np.testing.assert_allclose(tested[i]['bboxes'], found.boxes, atol=0.02)
        np.testing.assert_allclose([one['bbox'][:2] for one in predicted], found.boxes[:, :2], atol=0.02)
