"""YOLO and Pascal VOC folders from `tokennorm train --data` to the AP of `tokennorm test` and drawn detections."""

import json

import pytest
import torch

from experiments.shapes import make_shapes_dataset
from tests.helpers.folders import NAMES, with_pentagons, write_voc, write_yolo
from tests.helpers.trained import few
from tokennorm.cli.predict import main as predict
from tokennorm.cli.test import main as evaluate
from tokennorm.cli.train import main as train

CONFIG = 'retinanet_pvt-mini-dtn_fpn_bccd'


@pytest.mark.slow
@pytest.mark.parametrize(('write', 'classes'), [(write_yolo, NAMES), (write_voc, sorted(NAMES))], ids=['yolo', 'voc'])
def test_a_folder_is_trained_on_evaluated_and_predicted(write, classes, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'cache'))
    coco = make_shapes_dataset(tmp_path / 'shapes', num_train=8, num_val=4, image_size=64)
    root, work_dir = write(with_pentagons(coco), tmp_path / 'data'), tmp_path / 'work'
    train([CONFIG, '--data', str(root), '--epochs', '1', '--work-dir', str(work_dir), '--cfg-options', *few()])
    printed = capsys.readouterr().out
    assert f'8 images, 4 classes ({tmp_path}/cache/datasets/' in printed
    (best,) = work_dir.glob('best_coco_bbox_mAP_epoch_1.pth')
    assert torch.load(best, weights_only=False)['meta']['dataset_meta']['classes'] == tuple(classes)
    validated = json.loads((work_dir / 'report.json').read_text())['results']['bbox']['summary']['mAP']

    evaluate([CONFIG, str(work_dir), '--data', str(root), '--report', '--cfg-options', *few()])
    (metrics,) = (work_dir / 'test').glob('2*/*.json')
    ap = json.loads(metrics.read_text())['coco/bbox_mAP']
    assert ap == pytest.approx(validated, abs=6e-4)
    assert (work_dir / 'test' / 'report.html').is_file()

    images = next(folder for folder in (root / 'images' / 'val', root / 'JPEGImages') if folder.is_dir())
    predict([CONFIG, str(work_dir), str(images), '--out', str(tmp_path / 'out'), '--device', 'cpu'])
    found = json.loads((tmp_path / 'out' / 'detections.json').read_text())
    assert [category['name'] for category in found['categories']] == classes
    assert len(list((tmp_path / 'out' / 'vis').iterdir())) == len(found['images']) == len(list(images.iterdir()))
