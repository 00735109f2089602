"""One detector, one answer: `test`, `predict` and `Detector` find the same on images of several sizes, in batches."""

import json
import pickle

import cv2
import numpy as np
import pytest

import tokennorm
from tests.helpers.commands import tool
from tests.helpers.trained import CONFIG, options

SIZES = [(64, 48), (48, 64), (64, 64), (48, 64), (100, 40), (64, 48), (48, 64)]  # width, height
FEW = {'model.test_cfg.score_thr': 0.0, 'model.test_cfg.max_per_img': 5}


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
