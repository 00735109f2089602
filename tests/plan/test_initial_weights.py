"""Initial weights: those of the COCO detector, of the backbone, of `--init`, or none."""

from contextlib import nullcontext

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS

import tokennorm
from tests.helpers.cases import slow
from tests.helpers.commands import as_dict
from tests.helpers.trained import CONFIG, few
from tokennorm.base.messages import UserError
from tokennorm.base.published import PUBLISHED
from tokennorm.checkpoints.safe_reading import read_checkpoint
from tokennorm.commands.train import train
from tokennorm.config.paths import config as config_path
from tokennorm.engine import training
from tokennorm.plan import initial_weights, recipe
from tokennorm.plan.changes import Plan
from tokennorm.plan.options import TrainOptions


def use_initial_weights(cfg, init, own_data, keys=()):
    options = TrainOptions(cfg.filename, '.' if own_data else None, init=init)
    return list(
        filter(None, [initial_weights.use_initial_weights(Plan(cfg, dict.fromkeys(keys)), options).description])
    )


def read(name, **more):
    cfg = Config.fromfile(config_path(name))
    cfg.update(more)
    return cfg


@pytest.mark.parametrize('name', ['retinanet_efficientnet-lite0_fpn', 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'])
def test_random_initialization_freezes_no_stage_or_statistics(name):
    cfg = read(name)
    assert cfg.model.backbone.frozen_stages > 0
    use_initial_weights(cfg, 'none', own_data=True)
    assert (cfg.model.backbone.frozen_stages, cfg.model.backbone.norm_eval) == (-1, False)
    with pytest.raises(UserError, match='--freeze 1: the frozen stages would stay random; use --init'):
        initial_weights.use_initial_weights(Plan(cfg), TrainOptions(cfg.filename, init='none', freeze=1))
    with pytest.raises(UserError, match='--freeze 1: the frozen'):
        initial_weights.use_initial_weights(Plan(cfg), TrainOptions(cfg.filename, '.', freeze=1))
    options = TrainOptions(cfg.filename, init='none', freeze=1, resume=True)  # the weights of the checkpoint
    initial_weights.use_initial_weights(Plan(cfg), options)
    cfg.model.backbone.pretrained = True  # its class loads weights
    initial_weights.use_initial_weights(Plan(cfg), TrainOptions(cfg.filename, '.', freeze=1))
    recipe.freeze(cfg, 1)
    assert cfg.model.backbone.frozen_stages == 1


def test_own_data_starts_from_the_coco_detector():
    cfg = read('retinanet_pvt-t_fpn_1xb2-accum8-1x_coco')
    assert use_initial_weights(cfg, None, own_data=False) == []
    assert cfg.get('load_from') is None
    (line,) = use_initial_weights(cfg, None, own_data=True)
    assert cfg.load_from.endswith('retinanet_pvt-t_fpn_1x_coco_20210831_103110-17b566bd.pth')
    assert cfg.load_from in line


def test_own_data_keeps_the_weights_that_a_config_loads():
    cfg = read('retinanet_pvt-t_fpn_1x_coco', load_from='mine.pth')
    assert use_initial_weights(cfg, None, own_data=True) == []
    assert cfg.load_from == 'mine.pth'


def test_own_data_otherwise_starts_from_the_backbone():
    cfg = read('retinanet_pvt-t-dtn_fpn_1x_coco')
    backbone = cfg.model.backbone.init_cfg.checkpoint
    assert backbone in use_initial_weights(cfg, None, own_data=True)[0]
    assert cfg.get('load_from') is None
    with pytest.raises(UserError, match='no published COCO detector'):
        use_initial_weights(cfg, 'coco', own_data=True)
    cfg.model.roi_head = dict(shared_head=dict(init_cfg=dict(type='Pretrained', checkpoint='x.pth')))
    cfg.model.neck.init_cfg = dict(type='Xavier', layer='Conv2d')
    assert 'random' in use_initial_weights(cfg, 'none', own_data=True)[0]
    assert cfg.model.backbone.init_cfg is cfg.model.roi_head.shared_head.init_cfg is None
    assert cfg.model.neck.init_cfg.type == 'Xavier'
    with pytest.raises(UserError, match='no weights of its backbone'):
        use_initial_weights(cfg, 'imagenet', own_data=True)


def test_options_for_another_norm_leave_no_default_weights():
    cfg = read('retinanet_pvt-t_fpn_1x_coco')
    with pytest.raises(UserError, match=r'token_norm_cfg.type changes the model.*--init'):
        use_initial_weights(cfg, None, True, ['model.backbone.token_norm_cfg.type'])
    assert use_initial_weights(cfg, None, False, ['model.backbone.token_norm_cfg.type']) == []
    assert 'COCO' in use_initial_weights(cfg, None, True, ['model.backbone.frozen_stages'])[0]
    assert 'random' in use_initial_weights(cfg, 'none', True, ['model.backbone.stem_cfg'])[0]


def test_resume_and_options_against_the_default_weights(boxes, tmp_path, monkeypatch, capsys):
    seen = []

    def build(cfg, splits, checkpoint):
        seen.append((cfg.resume, cfg.load_from))
        raise UserError('enough')

    monkeypatch.setattr(training, 'build_runner', build)
    for _ in range(2):
        with pytest.raises(UserError, match='enough'):
            train('retinanet_pvt-t_fpn_1x_coco', boxes, resume=True, work_dir=tmp_path)
        torch.save(dict(state_dict={}, optimizer={}), tmp_path / 'epoch_1.pth')
    options = {'model.backbone.init_cfg': None}
    printed = capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob('*')}
    with pytest.raises(UserError, match=r'earlier training run, the latest of which is epoch_1.pth. resume'):
        train('retinanet_pvt-t_fpn_1x_coco', boxes, work_dir=tmp_path, cfg_options=options)
    assert capsys.readouterr().out == ''  # at once, before the data is inspected
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob('*')} == before
    with pytest.raises(UserError, match='enough'):
        train('retinanet_pvt-t_fpn_1x_coco', boxes, work_dir=tmp_path / 'new', cfg_options=options)
    url = PUBLISHED['retinanet_pvt-t'].url
    assert seen == [(False, url), ('auto', url), (False, None)]
    assert (printed + capsys.readouterr().out).count('Initial weights: ') == 1


def test_init_takes_a_detector_or_a_backbone(tmp_path):
    torch.save(dict(state_dict={'backbone.a': torch.ones(1), 'neck.b': torch.ones(1)}), tmp_path / 'detector.pth')
    torch.save({'a': torch.ones(1)}, tmp_path / 'backbone.pth')
    classifier = {'backbone.a': torch.ones(1), 'head.fc.weight': torch.ones(1)}
    torch.save(dict(state_dict=classifier), tmp_path / 'classifier.pth')
    cfg = read('retinanet_pvt-t_fpn_1x_coco')
    use_initial_weights(cfg, tmp_path / 'detector.pth', own_data=True)
    assert cfg.load_from == str(tmp_path / 'detector.pth')
    for name in ('backbone.pth', 'classifier.pth'):
        use_initial_weights(cfg, tmp_path / name, own_data=True)
        assert cfg.load_from is None
        assert cfg.model.backbone.init_cfg == dict(type='Pretrained', checkpoint=str(tmp_path / name))
    torch.save({'encoder_q.a': torch.ones(1), 'encoder_k.a': torch.zeros(1)}, tmp_path / 'moco.pth')
    cfg.model.backbone = dict(type='mmdet.ResNet')  # mmengine's loader takes the prefix
    use_initial_weights(cfg, tmp_path / 'moco.pth', own_data=True)
    assert cfg.model.backbone.init_cfg.prefix == 'encoder_q.'


@pytest.mark.parametrize(('name', 'top1'), [('pvt-mini', 20.52), ('pvt-mini-dtn', 22.18), ('pvt-mini-local', 24.88)])
def test_small_weights_fill_their_backbone(name, top1):
    cfg = read(f'retinanet_{name}_fpn')
    assert cfg.model.backbone.init_cfg.checkpoint == f'tokennorm:{name}'
    content = read_checkpoint(f'tokennorm:{name}')
    assert content['meta']['top1'] == top1
    assert 'non-commercial research' in content['meta']['terms']
    backbone = MODELS.build(cfg.model.backbone)
    backbone.init_weights()
    key = 'stages.0.blocks.0.attn.proj.weight'
    stored = content['state_dict'][f'backbone.{key}']
    assert stored.dtype == torch.float16
    assert torch.equal(backbone.state_dict()[key], stored.float())


@pytest.mark.usefixtures('without_report')
@pytest.mark.parametrize(('every', 'is_refused'), [slow(1, False), slow(2, False), (3, True), slow(40, True)])
def test_weights_have_most_tensors_of_a_third_party_backbone(every, is_refused, demo_data, tmp_path):
    """mmengine leaves out in silence what does not fit: here the file has every n-th tensor, under the right names."""
    backbone = dict(type='mmdet.ResNet', depth=18, base_channels=4)
    state = MODELS.build(backbone).state_dict()
    torch.save(dict(state_dict=dict(list(state.items())[::every])), tmp_path / 'weights.pth')
    model = dict(backbone=backbone | dict(_delete_=True), neck=dict(in_channels=[4, 8, 16, 32]))
    (tmp_path / 'resnet.py').write_text(f'_base_ = {CONFIG!r}\nmodel = {model}\n')
    run = dict(epochs=1, work_dir=tmp_path / 'run', init=str(tmp_path / 'weights.pth'), cfg_options=as_dict(few()))
    with pytest.raises(UserError, match=r'weights\.pth') if is_refused else nullcontext():
        tokennorm.train(tmp_path / 'resnet.py', demo_data, **run)
    assert (tmp_path / 'run' / 'epoch_1.pth').exists() != is_refused
