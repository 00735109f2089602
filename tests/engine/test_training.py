"""What training gets beyond its config, and `tokennorm.train` with own data: lengths, rates, best checkpoint."""

import copy
import json
from pathlib import Path

import pytest
import torch
from mmdet.visualization import DetLocalVisualizer
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper

import tokennorm
from experiments.shapes import make_shapes_dataset
from tests.helpers.coco_files import edit
from tests.helpers.commands import tool
from tests.helpers.scalars import logged
from tests.helpers.trained import CONFIG, few
from tokennorm.cli.arguments import ConfigOptions
from tokennorm.config.image_size import set_image_size
from tokennorm.config.paths import config as config_path
from tokennorm.config.tree import walk
from tokennorm.engine import recipe
from tokennorm.engine.epochs import describe_late_stages, set_epochs
from tokennorm.engine.hooks import check_metrics, use_training_hooks
from tokennorm.engine.options import TrainOptions
from tokennorm.engine.schedule import batch_of_lr
from tokennorm.messages import UserError
from tokennorm.norms import LocalLayerNorm
from tokennorm.plan import Plan
from tokennorm.plan.trained import note_sizes, use_trained_anchors


def config(**more):
    return Config(
        dict(
            model=dict(type='A', mask_head=dict()),
            default_scope='mmdet',
            train_cfg=dict(type='EpochBasedTrainLoop', max_epochs=60, val_interval=12),
            val_dataloader=dict(dataset=dict(type='CocoDataset')),
            val_evaluator=dict(type='CocoMetric', metric='bbox'),
        )
        | more
    )


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
    cfg = config(val_evaluator=evaluator)
    use_training_hooks(cfg)
    hook = cfg.default_hooks.checkpoint
    assert hook.max_keep_ckpts == 2
    assert hook.get('save_best') == metric
    cfg.default_hooks.checkpoint = dict(type='CheckpointHook', save_best='x', max_keep_ckpts=5)
    use_training_hooks(cfg)
    assert cfg.default_hooks.checkpoint == dict(type='CheckpointHook', save_best='x', max_keep_ckpts=5)
    if isinstance(evaluator, dict) and metric is not None:
        with pytest.raises(UserError, match=f'no metric x; there are {metric}'):
            check_metrics(cfg)
        cfg.default_hooks.checkpoint.save_best = [metric, metric]
        for auto in ('auto', ('auto',), ['auto', metric]):
            cfg.default_hooks.checkpoint.save_best = auto
            check_metrics(cfg)
            assert (cfg.default_hooks.checkpoint.save_best, cfg.default_hooks.checkpoint.rule) == (metric, 'greater')
        cfg.default_hooks.checkpoint.save_best = [metric, metric]
        cfg.param_scheduler = [dict(type='ReduceOnPlateauLR')]
        with pytest.raises(UserError, match=f'no metric loss; there are {metric}'):
            check_metrics(cfg)
        cfg.param_scheduler[0].monitor = metric
        with pytest.raises(UserError, match=f"would reduce the rate while {metric} rises: set rule='greater'"):
            check_metrics(cfg)
        cfg.param_scheduler[0].rule = 'greater'
        check_metrics(cfg)
        assert cfg.default_hooks.checkpoint.save_best == metric


def test_hooks_of_a_foreign_config_are_not_doubled():
    average, stop = dict(type='EMAHook', momentum=0.1), dict(type='EarlyStoppingHook', monitor='loss')
    checkpoint = dict(type='CheckpointHook', interval=3, max_keep_ckpts=1)
    cfg = config(default_hooks=dict(ema=average, stop=stop), custom_hooks=[checkpoint])
    use_training_hooks(cfg, ema=True, patience=2)
    hooks = [hook.type for hook in [*cfg.custom_hooks, *cfg.default_hooks.values()]]
    assert sorted(hooks) == sorted(
        [
            'EMAHook',
            'CheckpointHook',
            *(f'tokennorm.{name}Hook' for name in ('NonFinite', 'Report', 'Lambda', 'EarlyStopping')),
        ]
    )
    assert (cfg.default_hooks.checkpoint.interval, cfg.default_hooks.checkpoint.max_keep_ckpts) == (3, 1)
    cfg = config(default_hooks=dict(checkpoint=dict(type='CheckpointHook')), custom_hooks=[checkpoint])
    use_training_hooks(cfg, own_data=False)  # a recipe as it is
    assert checkpoint in cfg.custom_hooks
    assert 'max_keep_ckpts' not in cfg.default_hooks.checkpoint
    cfg = config(custom_hooks=[stop])  # mmengine's forgets its count when training is resumed
    use_training_hooks(cfg)
    assert cfg.custom_hooks[0] == dict(type='tokennorm.EarlyStoppingHook', monitor='loss')


def test_a_loop_of_teacher_and_student_keeps_its_own_names():
    cfg = config(val_cfg=dict(type='TeacherStudentValLoop'), val_evaluator=dict(type='CocoMetric'))
    use_training_hooks(cfg)
    assert 'save_best' not in cfg.default_hooks.checkpoint


def test_a_loop_of_iterations_counts_them_everywhere():
    cfg = config(train_cfg=dict(type='IterBasedTrainLoop', max_iters=90, val_interval=30))
    use_training_hooks(cfg)
    assert (cfg.default_hooks.checkpoint.by_epoch, cfg.default_hooks.checkpoint.interval) == (False, 30)
    assert cfg.log_processor.by_epoch is False


def test_a_resumed_run_keeps_its_anchors(tmp_path):
    path = Path(config_path('retinanet_pvt-mini-dtn_fpn'))
    run, cfg = Config.fromfile(path), Config.fromfile(path)
    run.model.bbox_head.anchor_generator.octave_base_scale = 1.5
    run.dump(tmp_path / path.name)
    recipe.use_anchors_of(Plan(cfg), tmp_path)
    assert cfg.model.bbox_head.anchor_generator.octave_base_scale == 1.5
    recipe.use_anchors_of(Plan(cfg), tmp_path / 'elsewhere')  # without a config: as they are


@pytest.mark.parametrize('name', ['retinanet_pvt-mini-dtn_fpn', 'mask-rcnn_pvt-mini_fpn'])
def test_anchors_go_with_the_weights(name):
    head, key, value = (
        ('rpn_head', 'scales', [2, 4]) if name.startswith('mask') else ('bbox_head', 'octave_base_scale', 1.5)
    )
    trained, cfg = (Config.fromfile(config_path(name)) for _ in range(2))
    trained.model[head].anchor_generator[key] = value
    note_sizes(Plan(trained), own_data=True)
    meta = trained.val_dataloader.dataset.metainfo
    assert 'anchors' in trained.train_dataloader.dataset.metainfo
    path = f'model.{head}.anchor_generator.{key}'

    def changed(cfg, meta, options=None):
        use_trained_anchors(plan := Plan(cfg, options), meta)
        return {one.path: one.value for one in plan.changes if one.path not in (options or {})}

    assert changed(cfg, meta) == {path: value}
    assert cfg.model[head].anchor_generator[key] == value
    assert changed(cfg, meta) == {}
    assert changed(Config.fromfile(config_path(name)), meta, {path: [8] if key == 'scales' else 8}) == {}
    assert changed(Config(dict(model=dict(type='DETR'))), meta) == {}
    # a checkpoint of others sets sizes of anchors only
    for other in (['model.backbone', dict(type='os.system')], [path, 'x'], [path], {'a': 1}, 'x', [None, 1]):
        assert changed(cfg, dict(anchors=other)) == {}


def test_notes_follow_the_config_of_an_earlier_run():
    """Its config is trained again with another image size and other anchors, without --data."""
    cfg = Config.fromfile(config_path('retinanet_pvt-mini-dtn_fpn'))
    note_sizes(Plan(cfg), own_data=False)
    assert not {'image_size', 'anchors'} & set(cfg.val_dataloader.dataset.get('metainfo') or ())
    path = 'model.bbox_head.anchor_generator.octave_base_scale'
    cfg.val_dataloader.dataset.metainfo = dict(image_size=128, anchors=[path, 1.5])  # as the first run noted them
    set_image_size(cfg, 320)
    cfg.merge_from_dict({path: 3})
    note_sizes(Plan(cfg), own_data=False)
    meta = cfg.train_dataloader.dataset.metainfo  # which the checkpoints keep
    assert (meta.image_size, list(meta.anchors)) == (320, [path, 3])


def test_kernels_of_local_layer_norm_train_faster():
    cfg = Config.fromfile(config_path('retinanet_pvt-mini-local_fpn'))
    groups = build_optim_wrapper(torch.nn.Sequential(LocalLayerNorm(4)), cfg.optim_wrapper).param_groups
    rates = {group['params'][0].ndim: group['lr'] for group in groups}
    assert rates[4] == pytest.approx(20 * rates[1])


STAGES = [  # a part of a recipe of 300 epochs, where it is, and its values for 30, 2 and 1 epochs
    (
        'custom_hooks',
        [dict(type='PipelineSwitchHook', switch_epoch=280, switch_pipeline=[])],
        'switch_epoch',
        (28, 1, 0),
    ),
    ('custom_hooks', [dict(type='YOLOXModeSwitchHook', num_last_epochs=15)], 'num_last_epochs', (2, 1, 0)),
    ('custom_hooks', [dict(type='YOLOXModeSwitchHook')], 'num_last_epochs', (2, 1, 0)),  # by its default
    ('custom_hooks', [dict(type='EMAHook', begin_epoch=0)], 'begin_epoch', (0, 0, 0)),
    ('custom_hooks', [dict(type='Mine', stop_epoch=300)], 'stop_epoch', (30, 2, 1)),
    ('custom_hooks', [dict(type='Mine', stop_epoch=400, by_epoch=False)], 'stop_epoch', (400, 400, 400)),
    ('custom_hooks', [dict(type='Mine', by_epoch=True, interval=100)], 'interval', (100, 100, 100)),
    ('default_hooks', dict(checkpoint=dict(type='CheckpointHook', save_begin=150)), 'save_begin', (15, 1, 0)),
    ('model', dict(type='TOOD', train_cfg=dict(initial_epoch=100)), 'initial_epoch', (10, 1, 0)),
]


@pytest.mark.parametrize(('place', 'part', 'key', 'values'), STAGES)
def test_stages_of_a_recipe_follow_its_length(place, part, key, values):
    for epochs, value in zip((30, 2, 1), values, strict=True):
        loop = dict(max_epochs=300, val_begin=150, val_interval=10, dynamic_intervals=[(280, 1)])
        cfg = config(**{'train_cfg': loop, place: copy.deepcopy(part)})
        set_epochs(cfg, epochs, 300)
        found = [step for _, step in walk(cfg[place]) if key in step]
        assert [step[key] for step in found] == [value]
        assert cfg.train_cfg == dict(
            max_epochs=epochs,
            val_begin={30: 15, 2: 1, 1: 0}[epochs],
            val_interval=10,
            dynamic_intervals=[({30: 28, 2: 1, 1: 0}[epochs], 1)],
        )


def test_stages_after_the_end_are_named():
    hooks = [dict(type='PipelineSwitchHook', switch_epoch=280), dict(type='YOLOXModeSwitchHook', num_last_epochs=15)]
    hooks += [dict(type='EMAHook', begin_epoch=15), dict(type='Mine', every_n_epochs=300)]
    checkpoint = dict(checkpoint=dict(type='CheckpointHook', save_begin=50))
    cfg = config(train_cfg=dict(max_epochs=50, val_interval=99), custom_hooks=hooks, default_hooks=checkpoint)
    said = 'Training has 50 epochs, so that these never happen: custom_hooks[0].switch_epoch=280'
    assert describe_late_stages(cfg) == [said]
    cfg.train_cfg.max_epochs = 281
    assert describe_late_stages(cfg) == []
    cfg.train_cfg.max_epochs = 15
    assert describe_late_stages(cfg)[0].endswith(
        'switch_epoch=280, custom_hooks[1].num_last_epochs=15, default_hooks.checkpoint.save_begin=50'
    )


def test_a_length_with_too_few_epochs_for_its_stages_is_refused():
    stages = [dict(action_epoch=0), dict(action_epoch=100), dict(action_epoch=200), dict(action_epoch=290)]
    cfg = config(train_cfg=dict(max_epochs=300), custom_hooks=[dict(type='SwitchRecipeHook', schedule=stages)])
    with pytest.raises(UserError, match=r'--epochs 3: custom_hooks\[0\].schedule has 4 stages, .* at least 5 epochs'):
        set_epochs(copy.deepcopy(cfg), 3, 300)
    set_epochs(cfg, 5, 300)
    assert [one['action_epoch'] for one in cfg.custom_hooks[0].schedule] == [0, 2, 3, 4]
    with pytest.raises(UserError, match='counts iterations'):
        set_epochs(config(train_cfg=dict(max_iters=300)), 3, None)


@pytest.mark.parametrize(('epochs', 'interval'), [(60, 6), (12, 1), (3, 1), (200, 12)])
def test_training_validates_ten_times(epochs, interval):
    cfg = Config.fromfile(config_path('retinanet_pvt-mini_fpn_bccd'))
    cfg.train_cfg.val_interval, cfg.optim_wrapper.type = 12, 'OptimWrapper'
    recipe.apply_options(Plan(cfg), TrainOptions('retinanet_pvt-mini_fpn_bccd', '.', epochs=epochs))
    assert (cfg.train_cfg.max_epochs, cfg.train_cfg.val_interval) == (epochs, interval)


@pytest.mark.parametrize(('hook', 'interval'), [(dict(interval=50), 6), (dict(interval=500, by_epoch=False), 500)])
def test_checkpoints_are_as_often_unless_they_count_iterations(hook, interval):
    cfg = config()
    cfg.default_hooks = dict(checkpoint=dict(type='CheckpointHook', **hook))
    set_epochs(cfg, 60, 60)
    use_training_hooks(cfg, most_epochs=recipe.most_epochs_between(cfg))
    assert cfg.default_hooks.checkpoint.interval == interval


def test_loggers_are_added_to_the_files():
    cfg = config(visualizer=dict(type='DetLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')]))
    recipe.log_to(cfg, ['tensorboard', 'mlflow'])
    assert [backend.type for backend in cfg.visualizer.vis_backends] == [
        'LocalVisBackend',
        'TensorboardVisBackend',
        'MLflowVisBackend',
    ]


@pytest.mark.parametrize(('cores', 'ranks', 'workers'), [(1, 1, 1), (2, 1, 1), (4, 1, 3), (32, 1, 4), (8, 4, 1)])
def test_workers_follow_the_cores(monkeypatch, cores, ranks, workers):
    monkeypatch.setattr(recipe.os, 'sched_getaffinity', lambda pid: set(range(cores)))
    monkeypatch.setenv('LOCAL_WORLD_SIZE', str(ranks))
    cfg = config()
    recipe.set_workers(cfg, None)
    assert (cfg.val_dataloader.num_workers, cfg.val_dataloader.persistent_workers) == (workers, True)


@pytest.mark.parametrize(
    ('given', 'intervals', 'occurrences'),
    [
        ({}, (6, 6), None),
        ({'train_cfg.val_interval': 30, 'default_hooks.checkpoint.interval': 40}, (30, 40), None),
        ({'default_hooks.non_finite.max_occurrences': 5}, (6, 6), 5),
    ],
)
def test_cfg_options_take_precedence(given, intervals, occurrences):
    cfg = Config.fromfile(config_path('retinanet_pvt-mini_fpn_bccd'))
    cfg.train_cfg.val_interval = cfg.default_hooks.checkpoint.interval = 50
    recipe.apply_options(
        Plan(cfg, given), TrainOptions('retinanet_pvt-mini_fpn_bccd', '.', epochs=60, cfg_options=given)
    )
    assert (cfg.train_cfg.val_interval, cfg.default_hooks.checkpoint.interval) == intervals
    assert cfg.default_hooks.non_finite == dict(type='tokennorm.NonFiniteHook') | (
        {} if occurrences is None else dict(max_occurrences=occurrences)
    )


def test_a_hook_of_training_can_be_removed():
    plan = recipe.open_plan(config_path('retinanet_pvt-mini_fpn_bccd'), options={'default_hooks.non_finite': None})
    recipe.apply_options(plan, TrainOptions('retinanet_pvt-mini_fpn_bccd'))
    assert 'non_finite' not in plan.cfg.default_hooks


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Classes and ids that the configs do not have."""
    root = make_shapes_dataset(tmp_path_factory.mktemp('data') / 'shapes', num_train=4, num_val=2, image_size=64)

    def rename(content):
        for entry in content['categories']:
            entry.update(id=entry['id'] + 5, name=f'my {entry["name"]}')
        for entry in content['annotations']:
            entry['category_id'] += 5

    for split in ('train', 'val'):
        edit(root, split, rename)
    return root


def as_dict(words):
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=ConfigOptions)
    return parser.parse_args(['--cfg-options', *words]).cfg_options


def test_a_run_on_own_data_is_complete(data, tmp_path, capsys):
    result = tokennorm.train(
        CONFIG, data, epochs=4, work_dir=tmp_path, ema=True, patience=3, image_size=96, cfg_options=as_dict(few())
    )
    scalars = logged(tmp_path)
    rates = [entry['lr'] for entry in scalars if 'lr' in entry]
    assert len(rates) == 4 * 2  # 4 images in batches of 2
    assert rates[-1] <= 0.1 * max(rates)
    assert 2e-3 * (2 / 8) ** 0.5 >= max(rates) > 0.8e-3  # the config is for 8 images per step, AdamW
    assert sum('coco/bbox_mAP' in entry for entry in scalars) == 4
    assert result.checkpoint.name.startswith('best_coco_bbox_mAP')
    assert (result.checkpoint.parent, result.checkpoint.is_file()) == (tmp_path, True)
    assert 0 <= result.metrics['coco/bbox_mAP'] <= 1
    assert len(list(tmp_path.glob('epoch_*.pth'))) <= 2
    cfg = Config.fromfile(next(tmp_path.glob('*.py')))
    assert cfg.test_dataloader.dataset.pipeline[1].scale == (96, 96)
    assert cfg.param_scheduler[-1].end == 4
    assert (cfg.optim_wrapper.optimizer.lr, batch_of_lr(cfg)) == (pytest.approx(1e-3), 2)  # no second scaling
    assert any(hook.type == 'EMAHook' for hook in cfg.custom_hooks)
    printed = capsys.readouterr().out
    _, summary = printed.partition('Epoch(train)')[0].split('This training run:')
    for line in (
        f'data           4 images, 4 classes ({data}/annotations/train.json)',
        f'validation     2 images, 4 classes ({data}/annotations/val.json), after every epoch',
        'image size     short side of 96 pixels',
        'schedule       4 epochs of 2 iterations, CosineAnnealingLR to epoch 4',
        'schedule       rescaled: in the config, the learning rate schedule ends at iteration 24 (epoch 12), ',
        'learning rate  0.001: 0.002 is for a batch size of 8, this run has 2; AdamW: square root of the batch',
        f'checkpoints    {tmp_path}: the best by coco/bbox_mAP and the latest 1',
    ):
        assert line in summary
    (log,) = tmp_path.glob('2*/*.log')
    for routine in ('paramwise_options -- ', 'Config:\n', 'System environment:', 'Hooks will be executed'):
        assert routine not in printed
        assert routine in log.read_text()
    assert 'not usable for masks' not in printed
    found = tokennorm.Detector(CONFIG, tmp_path, device='cpu')
    assert found.checkpoint == str(result.checkpoint)
    assert found.classes == ('my disk', 'my square', 'my triangle', 'my star')
    tool('predict')([str(tmp_path), str(data / 'images' / 'val'), '--out', str(tmp_path / 'out'), '--device', 'cpu'])
    detections = json.loads((tmp_path / 'out' / 'detections.json').read_text())
    assert detections['categories'][0] == dict(id=6, name='my disk')
    assert len(list((tmp_path / 'out' / 'vis').iterdir())) == len(detections['images']) == 2
    assert found._inferencer.cfg.test_dataloader.dataset.pipeline[1].scale == (96, 96)


def test_options_may_have_dicts():
    options = as_dict(["a.b=[{'type': 'X', 'k': (1, 2)}]", 'c=0.5', "d={'_delete_': True}"])
    assert options == {'a.b': [dict(type='X', k=(1, 2))], 'c': 0.5, 'd': dict(_delete_=True)}


@pytest.mark.usefixtures('without_report')
def test_the_learning_rate_is_scaled_once(data, tmp_path):
    """By mmengine, where `auto_scale_lr` is on: linearly, from the 8 images per step of the config to 2."""
    options = as_dict(few(**{'auto_scale_lr.enable': True})) | {'param_scheduler': []}
    tokennorm.train(CONFIG, data, epochs=1, work_dir=tmp_path, cfg_options=options)
    rates = [entry['lr'] for entry in logged(tmp_path) if 'lr' in entry]
    assert rates == pytest.approx([2e-3 * 2 / 8] * 2)


@pytest.mark.usefixtures('without_report')
def test_strong_augmentation_trains_and_logs_to_its_own_folder(data, tmp_path):
    DetLocalVisualizer.get_instance('visualizer', save_dir=str(tmp_path / 'of an earlier run in this process'))
    options = as_dict(few(**{'auto_scale_lr.base_batch_size': 2}))
    tokennorm.train(CONFIG, data, epochs=1, work_dir=tmp_path, augment='strong', cfg_options=options)
    cfg = Config.fromfile(next(tmp_path.glob('*.py')))
    assert cfg.optim_wrapper.optimizer.lr == 2e-3  # for the batch size that is named
    kinds = [step.type for step in cfg.train_dataloader.dataset.pipeline]
    assert kinds[:3] == ['Mosaic', 'RandomAffine', 'MixUp']
    assert len(list(tmp_path.glob('2*/vis_data/scalars.json'))) == 1
