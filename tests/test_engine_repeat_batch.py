"""A training whose numbers go wrong stops with what repeats it, and repeating it gives the same numbers."""

import math
import re

import numpy as np
import pytest
import torch
from mmdet.visualization import DetLocalVisualizer
from mmengine.config import Config

from tests.test_tools import CONFIG, options, tool
from tokennorm.datasets import make_shapes_dataset
from tokennorm.engine.hooks import non_finite
from tokennorm.engine.resume.repeat_batch import load_batch, repeat_batch


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('data') / 'shapes', num_train=4, num_val=1, image_size=64)


def train_to_the_stop(data, work_dir, max_occurrences, **more):
    """The message that three epochs of two iterations end with."""
    DetLocalVisualizer._instance_dict.clear()
    cfg = {
        'train_cfg.max_epochs': 3,
        'train_cfg.val_interval': 9,
        'default_hooks.checkpoint.interval': 9,
        'default_hooks.non_finite.max_occurrences': max_occurrences,
    }
    with pytest.raises(SystemExit) as ended:
        tool('train')([CONFIG, '--work-dir', str(work_dir), '--cfg-options', *options(data, **cfg, **more)])
    return str(ended.value)


@pytest.fixture(scope='module')
def stopped(data, tmp_path_factory):
    """The work folder and the message of a training with a learning rate that throws the weights away."""
    work_dir = tmp_path_factory.mktemp('work')
    huge = {'optim_wrapper.optimizer.lr': 1e30, 'param_scheduler': '[]'}
    return work_dir, train_to_the_stop(data, work_dir, 2, **huge)


def test_the_message_names_iteration_images_and_what_repeats_it(stopped):
    work_dir, message = stopped
    assert re.match(r'error: iteration 3: the loss is not finite \(loss.*, the gradient is not finite \(', message)
    assert re.search(r'Images: \S+/images/train/00000\d.jpg, \S+/images/train/00000\d.jpg\. ', message)
    assert f'`python tools/repeat_batch.py {work_dir}/retinanet_pvt-mini-dtn-dpn_fpn_shapes.py {work_dir}' in message
    assert message.endswith('non_finite/iter_3.pth`. Occurrence 2, at which the training stops')


def test_a_batch_is_read_without_running_code_and_keeps_its_ground_truth(stopped):
    saved = load_batch(stopped[0] / 'non_finite' / 'iter_3.pth')
    (batch,) = saved['batches']
    assert [x.dtype for x in batch['data']['inputs']] == [torch.uint8] * 2
    samples = batch['data']['data_samples']
    assert [sample.img_path for sample in samples] == saved['images']
    assert all(len(sample.gt_instances.bboxes) == len(sample.gt_instances.labels) for sample in samples)
    assert sum(len(sample.gt_instances.bboxes) for sample in samples) > 0


def repeated_losses(lines):
    return {name: float(value) for name, value in (x.split() for x in lines if re.match(r'  loss\S* \S+$', x))}


def test_repeating_shows_where_it_goes_wrong(stopped):
    work_dir, _ = stopped
    cfg = Config.fromfile(next(work_dir.glob('*.py')))
    path = work_dir / 'non_finite' / 'iter_3.pth'
    lines = repeat_batch(cfg, path)
    assert lines[0].startswith(f'{path}: iteration 3: the loss is not finite')
    assert not math.isfinite(repeated_losses(lines)['loss'])
    assert any('modules whose output is not finite, in the order of their ends: backbone.stages.0' in x for x in lines)
    assert re.search(r'gradients that are not finite: .*backbone\.stages', lines[-1])


def test_repeating_gives_the_same_losses(data, tmp_path, monkeypatch):
    """Of a training whose finite gradients are taken for others: weights, augmented images, truth, dropped paths."""
    monkeypatch.setattr(non_finite, '_are_finite', lambda grads: False)
    message = train_to_the_stop(data, tmp_path, 3)
    assert message.startswith('error: iteration 3: the gradient is not finite')
    path = tmp_path / 'non_finite' / 'iter_3.pth'
    lines = repeat_batch(Config.fromfile(next(tmp_path.glob('*.py'))), path)
    losses = load_batch(path)['losses']
    assert 0.5 < losses['loss'] < 5
    assert repeated_losses(lines) == pytest.approx(losses, rel=1e-5)
    assert lines[-1] == 'gradients that are not finite: none'


def test_other_files_are_refused(stopped, tmp_path):
    config = str(next(stopped[0].glob('*.py')))
    torch.save(dict(state_dict={}), tmp_path / 'a.pth')
    with pytest.raises(SystemExit, match=r'error: .*a.pth is no batch that NonFiniteHook saved'):
        tool('repeat_batch')([config, str(tmp_path / 'a.pth')])
    (tmp_path / 'b.pth').write_bytes(b'nothing')
    with pytest.raises(SystemExit, match=r'error: .*b.pth cannot be read as a saved batch'):
        tool('repeat_batch')([config, str(tmp_path / 'b.pth')])


def test_arrays_of_objects_are_refused(tmp_path):
    torch.save(dict(batches=[np.array([None, 'x'], dtype=object)], state_dict={}), tmp_path / 'planted.pth')
    with pytest.raises(ValueError, match='cannot be read as a saved batch'):
        load_batch(tmp_path / 'planted.pth')
