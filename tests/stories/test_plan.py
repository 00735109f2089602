"""What is printed before training is what trains: records of the plan, the written config, and the built objects."""

import re

import pytest
from mmengine.config import Config

import tokennorm
from experiments.shapes import make_shapes_dataset
from tests.helpers.trained import without_report  # noqa: F401 - a fixture
from tests.rules.folders import boxes, coco
from tokennorm.base.messages import UserError
from tokennorm.engine import training
from tokennorm.engine.training import plan_training
from tokennorm.findings import Findings, Refusal, judging
from tokennorm.plan.options import TrainOptions

RETINANET, MASK_RCNN = 'retinanet_pvt-mini-dtn_fpn', 'mask-rcnn_pvt-mini_fpn'
ANCHORS = 'model.bbox_head.anchor_generator.octave_base_scale'


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('data') / 'shapes', num_train=4, num_val=2, image_size=64)


def planned(config, data, tmp_path, **options):
    with judging(Findings()):
        plan, _ = plan_training(TrainOptions(config, data, out=tmp_path / 'run', init='none', **options))
    return plan


def value_at(cfg, path):
    node = cfg
    for key in path.split('.'):
        node = node[int(key)] if isinstance(node, list | tuple) else node[key]
    return node


OPTIONS = [
    (RETINANET, dict(epochs=3, image_size=96)),
    (RETINANET, dict(epochs=3, cfg_options={'train_cfg.max_epochs': 5, 'train_cfg.val_interval': 2})),
    (RETINANET, dict(image_size=96, cfg_options={'val_dataloader.dataset.pipeline.1.scale': (64, 64), ANCHORS: 8})),
    (RETINANET, dict(augment='strong', workers=0, batch_size=2, patience=2, ema=True, seed=1)),
    (RETINANET, dict(cfg_options={'model.bbox_head.num_classes': 4, 'default_hooks.checkpoint.interval': 2})),
    (MASK_RCNN, dict(image_size=64, cfg_options={'model.test_cfg.rcnn.score_thr': 0.2})),
    ('mmdet::rtmdet/rtmdet_tiny_8xb32-300e_coco.py', dict(epochs=4, cfg_options={'custom_hooks.1.switch_epoch': 1})),
]


@pytest.mark.parametrize(('config', 'options'), OPTIONS)
def test_each_record_is_in_the_config_and_the_user_has_the_last_word(config, options, data, tmp_path, capsys):
    plan = planned(config, data, tmp_path, **options)
    last = {change.path: change for change in plan.changes}
    for path, change in last.items():
        later = plan.changes[plan.changes.index(change) + 1 :]
        nested = any(path.startswith(f'{one.path}.') or one.path.startswith(f'{path}.') for one in later)
        if nested or '..' in path:
            continue  # of a part that was changed as a whole, or inside, later; or a key with a dot
        try:
            found = value_at(plan.cfg, path)
        except (KeyError, IndexError):
            found = None
        assert str(found) == str(None if repr(change.value).startswith('<object') else change.value), path
    for path, value in options.get('cfg_options', {}).items():
        assert value_at(plan.cfg, path) == value
    printed = [line for line in capsys.readouterr().out.splitlines() if ' (was ' in line]
    for path, value in re.findall(r'([\w.]+\.[\w.]+)=([^=]+?) \(was [^)]*\)', '\n'.join(printed)):
        assert str(value_at(plan.cfg, path)).replace(' ', '') == value.replace(' ', ''), path


@pytest.mark.usefixtures('without_report')
def test_the_summary_and_the_written_config_are_of_what_was_built(data, tmp_path, capsys):
    sets = {'val_dataloader.dataset.pipeline.1.scale': (64, 64), ANCHORS: 8, 'train_cfg.val_interval': 1}
    sets |= {'optim_wrapper.optimizer.lr': 3e-4}
    allow = ['zero-instance-category']
    run = dict(image_size=96, epochs=1, out=tmp_path / 'run', init='none', workers=0, allow=allow)
    tokennorm.train(RETINANET, data, **run, cfg_options=sets)
    printed = capsys.readouterr().out
    assert 'image size     short side of 64 pixels in evaluation' in printed
    assert 'learning rate  0.0003: as --cfg-options set it' in printed
    assert f'({ANCHORS}=8)' in printed  # the anchors that are compared with the objects are those that train
    assert f'{ANCHORS}=1' not in printed.partition('This training run')[0].replace(f'{ANCHORS}=1.5 would', '')
    (written,) = (tmp_path / 'run').glob('*.py')
    cfg = Config.fromfile(written)
    assert cfg.model.bbox_head.anchor_generator.octave_base_scale == 8
    assert cfg.val_dataloader.dataset.pipeline[1].scale == (64, 64)
    assert min(cfg.test_dataloader.dataset.pipeline[1].scale) == 96
    assert cfg.optim_wrapper.optimizer.lr == 3e-4
    assert cfg.allow == planned(str(written), None, tmp_path / 'other').cfg.allow == allow


@pytest.mark.parametrize('config', [None, RETINANET])
def test_a_run_that_is_resumed_keeps_what_was_allowed(config, tmp_path, monkeypatch):
    """Of errors, and of rules that change what is read."""
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'cache'))
    for name in ('data', 'run'):
        (tmp_path / name).mkdir()
    data = coco(boxes([60, 10, 70, 60], rest=[50, 20, 80, 60]))(tmp_path / 'data')
    options = TrainOptions(config, data, init='none', out=tmp_path / 'run', resume=True)
    (tmp_path / 'run' / 'epoch_1.pth').touch()
    (tmp_path / 'run' / 'written.py').write_text("work_dir = 'run'\nallow = ['bbox-as-corners', 'repeated-object']")
    with judging(Findings()) as found:
        plan, _ = plan_training(options)
    assert plan.cfg.allow == ['bbox-as-corners', 'repeated-object']
    assert not found.of('error')
    (corners,) = (one for one in found if one.code == 'bbox-as-corners')
    assert len(corners.items) == 8
    assert not [one for one in found if one.code == 'repeated-object']
    (tmp_path / 'run' / 'written.py').write_text("work_dir = 'run'")
    with judging(Findings()), pytest.raises(Refusal) as refused:
        plan_training(options)
    assert [one.code for one in refused.value.findings] == ['bbox-as-corners']


def test_data_is_read_once_and_as_the_run_in_the_default_directory_allows(tmp_path, monkeypatch):
    """The data chooses the config, and with it the directory of the run to resume."""
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'cache'))
    monkeypatch.chdir(tmp_path)
    reads, find_splits = [], training.find_splits
    monkeypatch.setattr(training, 'find_splits', lambda path: reads.append(path) or find_splits(path))
    (tmp_path / 'data').mkdir()
    data = coco(boxes([60, 10, 70, 60], rest=[50, 20, 80, 60]))(tmp_path / 'data')

    def plan_with(allow_of_masks):
        for name, allow in (('retinanet', ['bbox-as-corners']), ('mask-rcnn', allow_of_masks)):
            run = tmp_path / 'work_dirs' / f'{name}_pvt-mini_fpn'
            run.mkdir(parents=True, exist_ok=True)
            (run / 'epoch_1.pth').touch()
            (run / 'written.py').write_text(f"work_dir = '{run}'\nallow = {allow}")
        with judging(Findings()):
            plan, _ = plan_training(TrainOptions(data=data, init='none', model='mini', norm='ln', resume=True))
        return plan.cfg

    cfg = plan_with(['bbox-as-corners'])
    assert (cfg.work_dir, cfg.allow) == ('work_dirs/retinanet_pvt-mini_fpn', ['bbox-as-corners'])
    assert len(reads) == 1
    with pytest.raises(UserError, match=r'mask-rcnn_pvt-mini_fpn, .* allow different rules; name .* --out'):
        plan_with([])
    assert len(reads) == 1
