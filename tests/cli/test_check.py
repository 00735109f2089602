"""`tokennorm check` reads what training reads."""

from pathlib import Path

import pytest
from mmdet.registry import DATASETS
from mmengine.config import Config

from tests.helpers.configs import ROOT
from tests.helpers.folders import write_yolo
from tokennorm.cli.check import main as check
from tokennorm.engine.checks import check_config_data
from tokennorm.engine.data import use_data_folder


def test_a_config_and_the_check_read_a_yolo_folder(coco, tmp_path, cache, capsys):
    root = write_yolo(coco, tmp_path / 'yolo')
    cfg = Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py')
    use_data_folder(cfg, str(root), ('train', 'val'))
    check_config_data(cfg, ('train', 'val', 'test'))
    dataset = cfg.train_dataloader.dataset
    assert Path(dataset.ann_file).is_relative_to(cache)
    first = DATASETS.build(dataset).get_data_info(0)['img_path']
    assert Path(first).is_relative_to(root / 'images' / 'train')
    assert Path(first).is_file()
    assert cfg.model.bbox_head.num_classes == 4
    check([str(root), '--out', str(tmp_path / 'sheets')])
    assert '| train | 8 |' in capsys.readouterr().out
    assert (tmp_path / 'sheets' / 'train.jpg').is_file()
    with pytest.raises(SystemExit, match=r'error: .* no annotation file .* not a YOLO dataset'):
        check([str(root / 'labels')])
