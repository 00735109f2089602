"""Hooks of training: those that a config has already, the best checkpoint, and intervals."""

from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.hooks import CheckpointHook

from tests.helpers.configs import small_config
from tokennorm.plan import recipe
from tokennorm.plan.changes import Plan
from tokennorm.plan.epochs import set_epochs
from tokennorm.plan.hooks import training_hooks, use_common_hooks, use_training_hooks
from tokennorm.plan.recipe import use_coco_metric
from tokennorm.registry import HOOKS, type_name

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
ADDED = ('CPUSpeed', 'DataError', 'NonFinite', 'Progress', 'Summary', 'TrainBatches')


COCO_CONFIGS = sorted(path for path in CONFIGS.rglob('*.py') if '_1x_coco' in path.name)


@pytest.mark.parametrize(
    ('evaluator', 'metric'),
    [
        (dict(type='CocoMetric', metric='bbox'), 'coco/bbox_mAP'),
        (dict(type='tokennorm.CocoMetric', metric=['bbox', 'segm']), 'coco/segm_mAP'),
        ([dict(type='CocoMetric', metric='bbox', prefix='mine')], 'mine/bbox_mAP'),
        (dict(type='CocoMetric', metric=['proposal']), 'coco/AR@100'),
        (dict(type='CocoMetric', metric_items=['mAP_50', 'mAP']), 'coco/bbox_mAP_50'),
        (dict(type='VOCMetric'), None),
    ],
)
def test_the_best_checkpoint_is_by_box_or_mask_ap(evaluator, metric):
    cfg = small_config(val_evaluator=evaluator)
    use_training_hooks(cfg)
    hook = cfg.default_hooks.checkpoint
    assert hook.max_keep_ckpts == 2
    assert hook.get('save_best') == metric
    cfg.default_hooks.checkpoint = dict(type='CheckpointHook', save_best='x', max_keep_ckpts=5)
    use_training_hooks(cfg)
    assert cfg.default_hooks.checkpoint == dict(type='tokennorm.CheckpointHook', save_best='x', max_keep_ckpts=5)


def test_hooks_of_a_foreign_config_are_not_doubled():
    average, stop = dict(type='EMAHook', momentum=0.1), dict(type='EarlyStoppingHook', monitor='loss')
    checkpoint = dict(type='CheckpointHook', interval=3, max_keep_ckpts=1)
    cfg = small_config(default_hooks=dict(ema=average), custom_hooks=[checkpoint, stop])
    use_training_hooks(cfg, ema=True, patience=2)
    hooks = [hook.type for hook in [*cfg.custom_hooks, *cfg.default_hooks.values()]]
    assert sorted(hooks) == sorted(
        [
            'EMAHook',
            *(f'tokennorm.{name}Hook' for name in (*ADDED, 'Report', 'Checkpoint', 'EarlyStopping')),
        ]
    )
    assert cfg.default_hooks.early_stopping.patience == 2
    use_training_hooks(cfg, patience=3)  # a run with the config of this one
    assert cfg.default_hooks.early_stopping.patience == 3
    assert (cfg.default_hooks.checkpoint.interval, cfg.default_hooks.checkpoint.max_keep_ckpts) == (3, 1)
    cfg = small_config(default_hooks=dict(checkpoint=dict(type='CheckpointHook')), custom_hooks=[checkpoint])
    use_training_hooks(cfg, own_data=False)  # a recipe as it is
    assert cfg.custom_hooks == [dict(type='CheckpointHook', interval=3, max_keep_ckpts=1)]
    assert 'max_keep_ckpts' not in cfg.default_hooks.checkpoint
    finite = dict(type='tokennorm.NonFiniteHook', max_occurrences=1)
    cfg = small_config(custom_hooks=[stop, finite])  # mmengine's forgets its count when training is resumed
    use_training_hooks(cfg)
    assert cfg.custom_hooks == [dict(type='tokennorm.EarlyStoppingHook', monitor='loss'), finite]
    assert 'non_finite' not in cfg.default_hooks


@pytest.mark.parametrize('kind', ['CheckpointHook', 'mmengine.CheckpointHook', CheckpointHook, 'mine.CheckpointHook'])
def test_the_written_config_names_the_hook_that_resumes(kind):
    """Also a runner of mmengine that reads the config of a run then has it."""
    cfg = small_config(default_hooks=dict(checkpoint=dict(type=kind, interval=5)))
    for _ in range(2):
        use_training_hooks(cfg)
        assert cfg.default_hooks.checkpoint.type == (kind if 'mine' in str(kind) else 'tokennorm.CheckpointHook')
    cfg = small_config(default_hooks=dict(checkpoint=None))
    use_training_hooks(cfg)
    assert cfg.default_hooks.checkpoint is None


def test_a_loop_of_teacher_and_student_keeps_its_own_names():
    cfg = small_config(val_cfg=dict(type='TeacherStudentValLoop'), val_evaluator=dict(type='CocoMetric'))
    use_training_hooks(cfg)
    assert 'save_best' not in cfg.default_hooks.checkpoint


@pytest.mark.parametrize(('hook', 'interval'), [(dict(interval=50), 6), (dict(interval=500, by_epoch=False), 500)])
def test_checkpoints_are_as_often_unless_they_count_iterations(hook, interval):
    cfg = small_config()
    cfg.default_hooks = dict(checkpoint=dict(type='CheckpointHook', **hook))
    set_epochs(cfg, 60, 60)
    use_training_hooks(cfg, most_epochs=recipe.most_epochs_between(cfg))
    assert cfg.default_hooks.checkpoint.interval == interval


@pytest.mark.parametrize('config', COCO_CONFIGS[::10], ids=lambda path: path.stem)
def test_coco_configs_get_metric_and_hooks(config):
    cfg = Config.fromfile(config)
    before = [str(hook.type) for hook in cfg.get('custom_hooks') or []]
    for _ in range(2):
        use_coco_metric(cfg)
        use_training_hooks(cfg)
    assert cfg.val_evaluator.type == cfg.test_evaluator.type == 'tokennorm.CocoMetric'
    after = [str(hook.type) for hook in cfg.custom_hooks]
    assert after == before
    added = {hook.type for hook in cfg.default_hooks.values()}
    assert added >= {f'tokennorm.{name}Hook' for name in (*ADDED, 'Report')}


def test_classifiers_have_no_report():
    cfg = Config.fromfile(CONFIGS / 'imagenet' / 'pvt-tiny_8xb128_in1k.py')
    hooks, evaluator = list(cfg.get('custom_hooks') or []), dict(cfg.val_evaluator)
    use_coco_metric(cfg)
    use_training_hooks(cfg)
    assert list(cfg.custom_hooks) == hooks
    assert cfg.default_hooks.progress == dict(type='tokennorm.ProgressHook', metric='accuracy/top1')
    assert 'report' not in cfg.default_hooks
    assert cfg.val_evaluator == evaluator


ALL = training_hooks(['coco/bbox_mAP'], ema=True, patience=2)


@pytest.mark.parametrize('name', ALL)
def test_each_hook_has_a_name_and_can_be_switched_off(name):
    plan = Plan(small_config(), {f'default_hooks.{name}': None})
    with plan.step('hooks of training'):
        use_training_hooks(plan.cfg, ema=True, patience=2)
    plan.finish()
    hooks = plan.cfg.default_hooks
    of_type = [hook for hook in hooks.values() if hook and hook.type.endswith(type_name(ALL[name]))]
    assert hooks[name] is None
    assert of_type == []
    assert HOOKS.get(ALL[name]['type']) is not None


def test_a_config_that_was_written_on_a_cpu_trains_on_a_gpu(monkeypatch):
    cfg = small_config()
    use_training_hooks(cfg)
    assert 'cpu_speed' in cfg.default_hooks
    monkeypatch.setattr('tokennorm.plan.hooks.get_device', lambda: 'cuda')
    use_training_hooks(cfg)
    assert 'cpu_speed' not in cfg.default_hooks


def test_a_former_hook_is_left_out(capsys):
    cfg = small_config(custom_hooks=[dict(type='NumClassCheckHook'), dict(type='tokennorm.GoneHook')])
    with pytest.MonkeyPatch.context() as patch:  # the experiments of other tests may have registered it
        patch.setattr('tokennorm.plan.hooks.FORMER', 'tokennorm.GoneHook')
        use_common_hooks(cfg)
    assert [hook.type for hook in cfg.custom_hooks] == ['NumClassCheckHook']
    assert 'custom_hooks: tokennorm.GoneHook is left out' in capsys.readouterr().out
