"""`tokennorm train`: from data to a checkpoint and a report, again and further."""

import json

import pytest
import torch

from tests.helpers.trained import few
from tokennorm.cli.train import main


def test_more_gpus_than_there_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    with pytest.raises(SystemExit, match='--gpus 3: this machine has 2 GPUs'):
        main(['retinanet_pvt-mini_fpn', '--gpus', '3'])


@pytest.mark.slow
def test_two_ranks_train_without_a_config(boxes, tmp_path, monkeypatch, capfd):
    """On CPUs, over gloo: the ranks do not see the GPUs that this process pretends to have."""
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    words = ['--gpus', '2', '--data', boxes, '--model', 'mini', '--epochs', '1', '--work-dir', str(tmp_path)]
    main([*words, '--cfg-options', *few()])
    assert 'batch          4 images per step' in capfd.readouterr().out  # 2 per rank
    scalars = next(tmp_path.glob('*/vis_data/scalars.json')).read_text().splitlines()
    assert 'coco/bbox_mAP' in json.loads(scalars[-1])
    assert (tmp_path / 'epoch_1.pth').is_file()
    with pytest.raises(SystemExit) as ended:
        main([*words, '--cfg-options', *few()])
    assert ended.value.code == 1
    printed = capfd.readouterr().err
    assert 'has checkpoints of an earlier training run' in printed
    assert 'Traceback' not in printed
