"""A command reads a checkpoint once: it may have hundreds of megabytes, all of which are unpickled."""

import pytest

from tests.helpers.cases import slow
from tests.helpers.commands import tool
from tests.helpers.trained import CONFIG, options
from tokennorm.checkpoints import safe_reading as reading


@pytest.fixture
def reads(monkeypatch):
    """The names of the files that are read."""
    names, read = [], reading.read_data

    def counted(path, map_location):
        names.append(path.name)
        return read(path, map_location)

    monkeypatch.setattr(reading, 'read_data', counted)
    return names


@pytest.mark.usefixtures('without_report')
@pytest.mark.parametrize('command', ['predict', slow('test'), 'train --init', slow('train --resume')])
def test_a_checkpoint_is_read_once(command, demo_data, demo_trained, tmp_path, reads):
    best = 'best_coco_bbox_mAP_epoch_1.pth'
    work_dir, more = (
        ['--work-dir', str(tmp_path)],
        ['--cfg-options', *options(demo_data, **{'train_cfg.val_interval': 9})],
    )
    if command == 'predict':
        images = str(demo_data / 'images' / 'val')
        tool('predict')([str(demo_trained), images, '--out', str(tmp_path), '--device', 'cpu'])
    elif command == 'test':
        tool('test')([str(demo_trained), *work_dir, *more])
    elif command == 'train --init':
        tool('train')([CONFIG, '--init', str(demo_trained), *work_dir, *more])
    else:
        best = 'epoch_1.pth'
        tool('train')([CONFIG, '--resume', str(demo_trained / best), *work_dir, *more])  # which is complete
    assert reads == [best]
