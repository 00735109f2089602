"""The sheet of the first training batches: pixels, colors and objects are those that the network receives."""

import cv2
import numpy as np
import pytest
import torch
from mmdet.models.data_preprocessors import DetDataPreprocessor
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.structures import InstanceData
from mmpretrain.models.utils import ClsDataPreprocessor
from mmpretrain.structures import DataSample

from tests.helpers.commands import tool
from tests.helpers.trained import CONFIG, options
from tokennorm.engine.hooks import train_batches
from tokennorm.engine.hooks.progress import ProgressHook
from tokennorm.engine.hooks.train_batches import draw_batch, undo_normalization
from tokennorm.images.drawing import color_of
from tokennorm.report.hook import ReportHook
from tokennorm.report.scalars import read_scalars

MEAN, STD = [120.0, 110.0, 100.0], [50.0, 60.0, 70.0]


@pytest.mark.parametrize('normalized', [True, False])
@pytest.mark.parametrize('to_rgb', [True, False])
def test_pixels_are_those_of_the_file(to_rgb, normalized):
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 20, 30), np.uint8))  # BGR, as it is read
    cfg = dict(mean=MEAN, std=STD) if normalized else {}
    detectors = DetDataPreprocessor(bgr_to_rgb=to_rgb, pad_size_divisor=32, **cfg)
    batch = detectors(dict(inputs=[image], data_samples=[sample(20, 30)]), training=True)
    undone = undo_normalization(detectors, batch['inputs'])
    assert undone.shape == (1, 32, 32, 3)
    np.testing.assert_array_equal(undone[0, :20, :30], image.permute(1, 2, 0))
    classifiers = ClsDataPreprocessor(to_rgb=to_rgb, **cfg)
    batch = classifiers(dict(inputs=[image], data_samples=[DataSample().set_gt_label(1)]), training=True)
    np.testing.assert_array_equal(undo_normalization(classifiers, batch['inputs'])[0], image.permute(1, 2, 0))


def sample(height, width, boxes=((4, 4, 14, 14),), labels=(1,), masks=None):
    found = InstanceData(bboxes=torch.tensor(boxes).float(), labels=torch.tensor(labels))
    if masks is not None:
        found.masks = BitmapMasks(masks, height, width)
    meta = dict(img_shape=(height, width), pad_shape=(height, width), batch_input_shape=(height, width))
    return DetDataSample(gt_instances=found, metainfo=meta)


def test_boxes_and_masks_are_where_the_objects_are(monkeypatch):
    monkeypatch.setattr(train_batches, 'LONG_SIDE', 160)  # enlarged five times
    mask = np.zeros((1, 32, 32), np.uint8)
    mask[0, 20:24, 8:16] = 1
    preprocessor = DetDataPreprocessor(mean=MEAN, std=STD, bgr_to_rgb=True)
    data = dict(inputs=[torch.zeros(3, 32, 32, dtype=torch.uint8)])
    data['data_samples'] = [sample(32, 32, [(8, 8, 24, 28)], [1], mask)]
    (drawn,) = draw_batch(preprocessor, preprocessor(data, training=True), ('cat', 'dog'))
    colored = np.abs(drawn.astype(int) - color_of(1)).sum(-1) < 6
    rows, columns = np.nonzero(colored)
    assert drawn.shape == (160, 160, 3)
    assert (columns.min(), columns.max()) == (pytest.approx(40, abs=2), pytest.approx(120, abs=2))
    assert rows.max() == pytest.approx(140, abs=2)
    assert colored[26:39, 42:60].any()  # the plate with the name
    half = np.array(color_of(1)) // 2
    np.testing.assert_allclose(drawn[102:118, 43:78], np.broadcast_to(half, (16, 35, 3)), atol=2)
    assert not drawn[102:118, 85:115].any()
    assert [*draw_batch(preprocessor, dict(sup=data))] == []


def test_training_writes_a_sheet_for_the_report(demo_trained):
    sheet = cv2.imread(str(demo_trained / 'train_batches.jpg'))
    assert sheet.shape[1] == 4 * (train_batches.LONG_SIDE + 6)  # four images in the first epoch
    assert 'Training images' in (demo_trained / 'report.html').read_text()


@pytest.mark.slow
def test_what_is_shown_changes_no_weight(demo_data, tmp_path, monkeypatch):
    words = options(demo_data, **{'train_cfg.max_epochs': 2, 'randomness.seed': 1})
    tool('train')([CONFIG, '--work-dir', str(tmp_path / 'shown'), '--cfg-options', *words])
    assert (tmp_path / 'shown' / 'train_batches.jpg').is_file()
    monkeypatch.setattr(train_batches.TrainBatchesHook, 'before_train', lambda self, runner: None)
    monkeypatch.setattr(ProgressHook, 'after_train_iter', lambda self, runner, **_: None)
    monkeypatch.setattr(ReportHook, 'after_val_epoch', lambda self, runner, metrics: None)
    tool('train')([CONFIG, '--work-dir', str(tmp_path / 'hidden'), '--cfg-options', *words])
    assert not (tmp_path / 'hidden' / 'train_batches.jpg').is_file()
    states = [torch.load(tmp_path / name / 'epoch_2.pth', weights_only=False) for name in ('shown', 'hidden')]
    for name, value in states[0]['state_dict'].items():
        assert torch.equal(value, states[1]['state_dict'][name]), name
    one, other = (state['training_state']['random_states'][0] for state in states)
    assert torch.equal(one['torch'], other['torch'])
    assert torch.equal(one['numpy'][1], other['numpy'][1])
    assert one['python'] == other['python']
    logs = [read_scalars(tmp_path / name) for name in ('shown', 'hidden')]
    assert logs[0]['coco/bbox_mAP'] == logs[1]['coco/bbox_mAP']
    assert logs[0]['loss'] == logs[1]['loss']
