"""`tokennorm test`: the evaluation of a checkpoint, its files, and test-time augmentation."""

import json
import pickle
import re
import shutil

import cv2
import numpy as np
import pytest
import torch
from mmcv.ops import batched_nms
from mmdet.structures.bbox import bbox_flip

from tests.helpers.commands import tool
from tests.helpers.trained import CONFIG, options
from tokennorm.inference.torch_detector import TorchDetector


def test_test_evaluates_draws_and_dumps_next_to_the_checkpoint(demo_data, demo_trained, tmp_path, capsys):
    """Of a work directory the best checkpoint; the run keeps its config and its report, also with --work-dir."""
    work_dir = shutil.copytree(demo_trained, tmp_path / 'work', ignore=shutil.ignore_patterns('2*'))
    before = {path.name for path in work_dir.iterdir()}
    out = tmp_path / 'predictions.pkl'
    arguments = [
        CONFIG,
        str(work_dir),
        '--out',
        str(out),
        '--show-dir',
        'drawn',
        '--report',
        '--work-dir',
        str(work_dir),
    ]
    resumed = options(demo_data, resume=True)  # as in the config that a resumed run writes
    tool('test')([*arguments, '--cfg-options', *resumed])
    assert len(pickle.loads(out.read_bytes())) == 3
    assert {path.name for path in work_dir.iterdir()} - before == {'test'}
    assert len(list(work_dir.glob('test/*/drawn/*.jpg'))) == 3
    (metrics,) = work_dir.glob('test/2*/*.json')
    ap = json.loads(metrics.read_text())['coco/bbox_mAP']
    report = json.loads((work_dir / 'test' / 'report.json').read_text())
    assert report['results']['bbox']['summary']['mAP'] == pytest.approx(ap, abs=6e-4)
    assert report['checkpoint'].endswith('.pth')
    printed = capsys.readouterr().out
    best = next(work_dir.glob('best_*.pth'))
    assert f'Checkpoint: {best} (epoch {best.stem[-1]}, the best of its training run, coco_bbox_mAP ' in printed
    assert f'The report is in {work_dir}/test/report.html' in printed
    assert re.search(rf'^from 0 to 100 +AP +AP50 +AP75\ncoco/bbox_mAP +{100 * ap:.1f} ', printed, re.MULTILINE)
    assert (work_dir / 'test' / 'report.html').is_file()
    assert f'Metrics and log: {work_dir}/test/2' in printed


def test_a_checkpoint_goes_with_its_classes_alone(demo_data, demo_trained, tmp_path):
    own = shutil.copytree(demo_data, tmp_path / 'own')
    for split in ('train', 'val'):
        path = own / 'annotations' / f'{split}.json'
        content = json.loads(path.read_text())
        content['categories'].reverse()
        path.write_text(json.dumps(content))
    (checkpoint,) = demo_trained.glob('epoch_*.pth')
    arguments = [CONFIG, str(checkpoint), '--data', str(own), '--work-dir', str(tmp_path)]
    message = r'(?s)are in another order: 4 \(disk, .*star, triangle, square, disk\)'
    with pytest.raises(SystemExit, match=message):
        tool('test')(arguments)
    with pytest.raises(SystemExit, match=message):
        tool('train')([CONFIG, '--resume', *arguments[1:]])


def test_tta_merges_an_image_and_its_mirror_image(demo_data, demo_trained, tmp_path, capsys):
    out = tmp_path / 'predictions.pkl'
    words = [CONFIG, str(demo_trained), '--work-dir', str(tmp_path), '--out', str(out), '--tta']
    tool('test')([*words, '--cfg-options', *options(demo_data)])
    assert 'Test-time augmentation: 2 views per image' in capsys.readouterr().out
    (checkpoint,) = demo_trained.glob('best_*.pth')
    detector = TorchDetector(CONFIG, checkpoint, 'cpu', {'model.test_cfg.score_thr': 0.0})
    for found in pickle.loads(out.read_bytes()):
        image = cv2.imread(found['img_path'])
        one, other = detector([image, np.ascontiguousarray(image[:, ::-1])], score_threshold=0.0)
        views = torch.from_numpy(one.boxes), bbox_flip(torch.from_numpy(other.boxes), image.shape)
        scores, labels = (
            torch.from_numpy(np.concatenate(pair))
            for pair in zip(*((f.scores, f.labels) for f in (one, other)), strict=True)
        )
        boxes, _ = batched_nms(torch.cat(views), scores, labels, dict(type='nms', iou_threshold=0.5))
        actual = found['pred_instances']
        assert len(actual['scores']) == len(boxes[:100])
        torch.testing.assert_close(actual['scores'], boxes[:100, 4], rtol=0, atol=1e-4)
        torch.testing.assert_close(actual['bboxes'][:20], boxes[:20, :4], rtol=0, atol=1e-2)  # pixels


def test_a_checkpoint_of_another_norm_and_stem_is_not_evaluated(demo_data, demo_trained, tmp_path):
    control = CONFIG.replace('-dtn-dpn', '')
    (checkpoint,) = demo_trained.glob('epoch_*.pth')
    with pytest.raises(
        SystemExit, match=r'(?s)does not fit RetinaNet.*unexpected: .*mean_logit.*another shape: .*proj'
    ):
        tool('test')([control, str(checkpoint), '--work-dir', str(tmp_path), '--cfg-options', *options(demo_data)])
