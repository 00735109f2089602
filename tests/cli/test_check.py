"""`tokennorm check` reads what training reads."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from mmdet.registry import DATASETS
from mmengine.config import Config

from tests.helpers.configs import ROOT
from tests.helpers.folders import write_yolo
from tokennorm.cli.check import main as check
from tokennorm.datasets.image_files import list_images
from tokennorm.engine.rules import Built, verify
from tokennorm.plan.changes import Plan
from tokennorm.plan.data import use_data_folder

THREE = ['cat', 'dog', 'owl']


def check_yolo(root, lines, names, out, capfd):
    """Writes labels for the images of a folder, line by line in turn, and returns what `check --json` says."""
    for i, path in enumerate(list_images(root)):
        path.with_suffix('.txt').write_text(f'{lines[i % len(lines)]}\n')
    (root / 'data.yaml').write_text(yaml.safe_dump(dict(train='train', val='val', names=names)))
    check([str(root), '--json', '--out', str(out)])
    return json.loads(capfd.readouterr().out)


@pytest.mark.parametrize('names', [THREE, THREE[:2], THREE[:1]], ids=len)
def test_a_clean_yolo_folder_is_quiet(names, root, tmp_path, capfd):
    lines = [f'{i} 0.5 0.5 0.2 0.3' for i in range(len(names))]
    said = check_yolo(root, lines, names, tmp_path / 'out', capfd)
    assert (said['errors'], said['warnings']) == ([], [])
    assert said['splits']['train']['annotations'] == 4


def test_yolo_classes_that_count_from_1_are_named(root, tmp_path, capfd):
    said = check_yolo(root, ['1 0.5 0.5 0.2 0.3', '2 0.5 0.5 0.2 0.3'], THREE, tmp_path / 'out', capfd)
    assert any('class 0' in line for line in said['warnings'])


@pytest.mark.parametrize(('value', 'is_refused'), [(1.005, False), (-0.005, False), (1.05, True), (-0.05, True)])
def test_yolo_labels_may_be_rounded_beyond_the_image(value, is_refused, root, tmp_path, capfd):
    lines = [f'0 0.4 0.4 0.5 0.4 {value} 0.5']
    if is_refused:
        with pytest.raises(SystemExit, match=r'error: 2 problems'):
            check_yolo(root, lines, THREE[:1], tmp_path / 'out', capfd)
        assert '[label-outside-image; if it is right: --allow label-outside-image]' in capfd.readouterr().err
    else:
        assert check_yolo(root, lines, THREE[:1], tmp_path / 'out', capfd)['splits']['val']['annotations'] == 4


def test_a_config_and_the_check_read_a_yolo_folder(coco, tmp_path, cache, capsys):
    root = write_yolo(coco, tmp_path / 'yolo')
    cfg = Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py')
    use_data_folder(Plan(cfg), str(root), ('train', 'val'))
    verify('config', Built(cfg, ('train', 'val', 'test')))
    dataset = cfg.train_dataloader.dataset
    assert Path(dataset.ann_file).is_relative_to(cache)
    first = DATASETS.build(dataset).get_data_info(0)['img_path']
    assert Path(first).is_relative_to(root / 'images' / 'train')
    assert Path(first).is_file()
    assert cfg.model.bbox_head.num_classes == 4
    check([str(root), '--out', str(tmp_path / 'sheets')])
    assert re.search(r'^train +8 ', capsys.readouterr().out, re.MULTILINE)
    assert (tmp_path / 'sheets' / 'train.jpg').is_file()
    with pytest.raises(SystemExit, match=r'error: .* no annotation file .* not a YOLO dataset'):
        check([str(root / 'labels')])


def test_hostile_and_foreign_class_names_are_shown(coco, tmp_path, cache, capfd):
    """Escape sequences do not reach the terminal, on any path that a name takes to it; other scripts are shown."""
    names = ['cat\x1b[2J\x1b]0;x\x07', '红色', 'größe\r', 'قطة']
    root = shutil.copytree(coco, tmp_path / 'data')
    for path in (root / 'annotations').glob('*.json'):
        content = json.loads(path.read_text(encoding='utf-8'))
        for i, category in enumerate(content['categories']):
            category['name'] = names[i % len(names)]
        content['annotations'][0]['bbox'] = [-5, 5, 10**6, 20]  # a finding with names
        path.write_text(json.dumps(content), encoding='utf-8')
    with suppress(SystemExit):
        check([str(root), '--out', str(tmp_path / 'out')])
    shown = ''.join(capfd.readouterr())
    assert r'cat\x1b[2J\x1b]0;x\x07' in shown
    assert '红色' in shown
    assert not {'\x1b', '\r', '\x07'} & set(shown)


def test_a_folder_is_checked_without_pytorch(coco, tmp_path, cache):
    code = (
        'import sys\nfrom tokennorm.cli.check import main\n'
        f'main([{str(coco)!r}, "--out", {str(tmp_path / "out")!r}])\nassert "torch" not in sys.modules'
    )
    process = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / 'out' / 'train.jpg').exists()
