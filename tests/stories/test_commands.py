"""The command lines: a tiny training run, resuming it, its evaluation, and errors that say what to do."""

import json
import os
import pickle
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmcv.ops import batched_nms
from mmdet.apis import DetInferencer
from mmdet.structures.bbox import bbox_flip
from mmengine.config import Config
from pycocotools.coco import COCO

from tests.helpers.commands import tool
from tests.helpers.scalars import logged
from tests.helpers.trained import CONFIG, options
from tokennorm.inference.detector import TorchDetector


def test_training_writes_checkpoint_and_report(demo_trained):
    checkpoint = torch.load(demo_trained / 'epoch_1.pth', weights_only=False)
    assert checkpoint['meta']['iter'] == 2
    position = checkpoint['state_dict']['backbone.stages.0.blocks.0.norm1.position']
    assert not torch.equal(position, torch.tensor([[-1.0, 0.0, 0.0]])), 'DTN was not trained'
    losses = [entry['loss'] for entry in logged(demo_trained) if 'loss' in entry]
    assert len(losses) == 2
    assert all(0 < loss < 100 for loss in losses)
    assert any('coco/bbox_mAP' in entry for entry in logged(demo_trained))
    assert all((demo_trained / name).stat().st_size > 1000 for name in ('report.html', 'report.json'))


def test_resume_continues_where_training_stopped(demo_data, demo_trained, tmp_path, without_report, capsys):
    work_dir = shutil.copytree(demo_trained, tmp_path / 'work')
    (work_dir / 'last_checkpoint').write_text(str(work_dir / 'epoch_1.pth'))
    more = options(demo_data, **{'train_cfg.max_epochs': 2})
    words = [CONFIG, '--work-dir', str(work_dir), '--resume', '--lr', '0.004']
    tool('train')([*words, '--cfg-options', *more])
    steps = [entry['step'] for entry in logged(work_dir) if 'loss' in entry]
    assert steps == [1, 2, 3, 4]
    rates = [entry['lr'] for entry in logged(work_dir) if 'lr' in entry]
    assert rates[2] == pytest.approx(2 * rates[1], rel=0.01), 'the schedule of --lr 0.004, of which half is over'
    assert f'learning rate  {rates[2]:.4g} now, where the schedule' in capsys.readouterr().out
    assert torch.load(work_dir / 'epoch_2.pth', weights_only=False)['meta']['iter'] == 4


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
    assert f'coco/bbox_mAP, from 0 to 100: AP {100 * ap:.1f}, AP50 ' in printed
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


def test_config_of_a_resumed_run_does_not_resume(demo_data, demo_trained, tmp_path, without_report):
    work_dir = shutil.copytree(demo_trained, tmp_path / 'work')
    first = {'model.backbone.init_cfg.type': 'Pretrained', 'model.backbone.init_cfg.checkpoint': 'none.pth'}
    first |= {'load_from': str(demo_trained / 'epoch_1.pth')}  # the initial weights of the first run
    words = [CONFIG, '--work-dir', str(work_dir), '--resume', '--lr', '0.003']  # which writes the config once more
    tool('train')([*words, '--cfg-options', *options(demo_data, **first)])  # complete already
    cfg = Config.fromfile(work_dir / Path(CONFIG).name)
    assert (cfg.resume, cfg.load_from) == (False, str(demo_trained / 'epoch_1.pth'))
    assert cfg.model.backbone.init_cfg.checkpoint == 'none.pth'
    assert cfg.optim_wrapper.optimizer.lr == 0.003


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


def test_data_with_errors_is_not_trained_on(demo_data, tmp_path, capsys):
    own = shutil.copytree(demo_data, tmp_path / 'own')
    (own / 'images' / 'val' / '000000.jpg').unlink(missing_ok=True)
    next((own / 'images' / 'val').iterdir()).write_bytes(b'')
    with pytest.raises(SystemExit, match='own has errors, listed above'):
        tool('train')([CONFIG, '--data', str(own), '--work-dir', str(tmp_path)])
    assert 'ERROR: val: image files' in capsys.readouterr().out


def test_predictions_on_a_folder_are_those_of_mmdet(demo_data, demo_trained, tmp_path, monkeypatch, capsys):
    """Boxes, scores and ids as COCO's API reads them, equal to what mmdet's inferencer says from another folder."""
    monkeypatch.chdir(tmp_path)
    (checkpoint,) = demo_trained.glob('epoch_*.pth')
    few = ['--cfg-options', 'model.test_cfg.score_thr=0.0', 'model.test_cfg.max_per_img=5']
    tool('predict')(
        [CONFIG, str(checkpoint), str(demo_data / 'images' / 'val'), '--out', 'out', '--batch-size', '2', *few]
    )
    printed = capsys.readouterr()
    assert f'Checkpoint: {checkpoint} (epoch ' in printed.out
    assert 'Failed to search registry' not in printed.out + printed.err
    assert '--thresholds best' not in printed.out  # thresholds.json is that of the best checkpoint
    coco = COCO('out/detections.json')
    inferencer = DetInferencer(CONFIG, str(checkpoint), device='cpu', show_progress=False)
    inferencer.model.test_cfg.update(score_thr=0.0, max_per_img=5)
    for image in coco.dataset['images']:
        (expected,) = inferencer(str(demo_data / 'images' / 'val' / image['file_name']))['predictions']
        annotations = coco.imgToAnns[image['id']]
        assert len(annotations) == 5
        boxes = np.array([a['bbox'] for a in annotations])
        boxes[:, 2:] += boxes[:, :2]
        np.testing.assert_allclose(boxes, expected['bboxes'], atol=0.02)
        np.testing.assert_allclose([a['score'] for a in annotations], expected['scores'], atol=1e-4)
        assert [a['category_id'] - 1 for a in annotations] == expected['labels']
        assert (image['width'], image['height']) == (64, 64)
        assert Path('out/vis', image['file_name']).stat().st_size > 500


def test_predictions_on_a_video(demo_data, demo_trained, tmp_path, capsys):
    video = cv2.VideoWriter(str(tmp_path / 'v.mp4'), cv2.VideoWriter.fourcc(*'mp4v'), 5, (64, 64))
    for path in sorted((demo_data / 'images' / 'val').iterdir()):
        video.write(cv2.imread(str(path)))
    video.release()
    arguments = [CONFIG, str(demo_trained / 'epoch_1.pth'), str(tmp_path / 'v.mp4'), '--out', str(tmp_path / 'out')]
    tool('predict')(arguments)
    images = json.loads((tmp_path / 'out' / 'detections.json').read_text())['images']
    assert [image['file_name'] for image in images] == ['v/000000', 'v/000001', 'v/000002']
    drawn = cv2.VideoCapture(str(tmp_path / 'out' / 'detections.mp4'))
    assert drawn.get(cv2.CAP_PROP_FRAME_COUNT) == 3
    video = cv2.VideoWriter(str(tmp_path / 'cut.avi'), cv2.VideoWriter.fourcc(*'MJPG'), 5, (64, 64))
    for _ in range(20):
        video.write(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))
    video.release()
    os.truncate(tmp_path / 'cut.avi', (tmp_path / 'cut.avi').stat().st_size // 4)
    tool('predict')([*arguments[:2], str(tmp_path / 'cut.avi'), *arguments[3:], '--score-thr', '0.01'])
    printed = capsys.readouterr().out
    assert re.search(r'the file claims 20 frames, and \d were decoded: it may be trimmed or damaged', printed)
    assert 'The config drops scores below 0.05; --cfg-options sets the score_thr' in printed


def test_analysis_counts_operations(capsys):
    tool('analysis')(['flops', CONFIG, '--shape', '128', '128'])
    assert capsys.readouterr().out == '0.151 G multiply-adds, 2.08 M parameters\n'


def test_load_from_detector_needs_no_backbone_weights(demo_data, demo_trained, tmp_path, without_report):
    (checkpoint,) = demo_trained.glob('epoch_*.pth')
    start = {'model.backbone.init_cfg.type': 'Pretrained', 'model.backbone.init_cfg.checkpoint': 'none.pth'}
    few = options(demo_data, load_from=str(checkpoint), **start)
    tool('train')([CONFIG, '--work-dir', str(tmp_path), '--cfg-options', *few])
    assert (tmp_path / 'epoch_1.pth').is_file()


def test_classes_that_do_not_fit_are_named(demo_data, tmp_path):
    more = options(demo_data, **{'model.bbox_head.num_classes': 80})
    with pytest.raises(SystemExit, match=r'model.bbox_head.num_classes=80'):
        tool('train')([CONFIG, '--work-dir', str(tmp_path), '--cfg-options', *more])
