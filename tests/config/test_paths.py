"""Configs are found by path, by name and in other packages, and a misspelled name gets the nearest one."""

from pathlib import Path

import mmdet
import pytest
from mmengine.config import Config
from mmengine.hub import get_config

import tokennorm
from tokennorm.config.open_config import read_config
from tokennorm.config.paths import CONFIGS, config_files

PVT = 'pvt/retinanet_pvt-t_fpn_1x_coco'


@pytest.mark.parametrize(
    'name',
    [
        PVT,
        f'configs/{PVT}.py',
        'retinanet_pvt-t_fpn_1x_coco.py',
        f'tokennorm::{PVT}.py',
        'tokennorm::retinanet_pvt-t_fpn_1x_coco',
        CONFIGS / f'{PVT}.py',
    ],
)
def test_names_of_one_config(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tokennorm.config(name) == str(CONFIGS / f'{PVT}.py')


def test_paths_come_first_and_other_packages_have_a_prefix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('retinanet_pvt-t_fpn_1x_coco.py').touch()
    assert tokennorm.config('retinanet_pvt-t_fpn_1x_coco.py') == 'retinanet_pvt-t_fpn_1x_coco.py'
    found = Path(tokennorm.config('mmdet::retinanet/retinanet_r50_fpn_1x_coco'))
    assert found.samefile(Path(mmdet.__file__).parent / '.mim/configs/retinanet/retinanet_r50_fpn_1x_coco.py')


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('retinanet_pvt-tt_fpn_1x_coco', r'did you mean retinanet_pvt-t_fpn_1x_coco\?'),
        ('pvt/retinanet_pvtt_fpn_1x_coco.py', rf'did you mean {PVT}\?'),
        ('mmdet::retinanet/retinanet_r50_fpn_1_coco.py', r'did you mean mmdet::retinanet/retinanet_r50_fpn_1x_coco\?'),
    ],
)
def test_names_of_no_config(name, message):
    with pytest.raises(FileNotFoundError, match=message):
        tokennorm.config(name)


def test_every_config_has_a_name_of_its_own():
    stems = [path.stem for path in config_files()]
    assert len(stems) > 50
    assert len(set(stems)) == len(stems)


def test_a_base_of_the_package_by_scope_equals_it_by_path(tmp_path):
    path = tmp_path / 'mine.py'
    mini = 'trial/retinanet_pvt-mini-dtn_fpn'  # its own file names mmdet's transforms
    path.write_text(f"_base_ = 'tokennorm::{mini}.py'\n")
    by_scope = read_config(path)
    path.write_text(f"_base_ = __import__('tokennorm').config('{mini}')\n")
    assert by_scope.to_dict() == read_config(path).to_dict()


def test_configs_of_the_package_are_bases(tmp_path):
    path = tmp_path / 'mine.py'
    path.write_text(f"_base_ = 'tokennorm::{PVT}.py'\nwork_dir = 'x'\n")
    by_scope = Config.fromfile(path)
    path.write_text(f"_base_ = __import__('tokennorm').config('{PVT}')\nwork_dir = 'x'\n")
    by_path = Config.fromfile(path)
    assert by_scope.model.backbone.type == by_path.model.backbone.type == 'tokennorm.PVT'
    assert by_scope.work_dir == 'x'
    assert get_config(f'tokennorm::{PVT}.py').model == by_path.model
