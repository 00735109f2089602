"""`tokennorm.train` with own data: a run with its summary, learning rate and augmentation."""

import json

import pytest
import torch
from mmdet.visualization import DetLocalVisualizer
from mmengine.config import Config

import tokennorm
from experiments.shapes import make_shapes_dataset
from tests.helpers.cases import slow
from tests.helpers.coco_files import edit
from tests.helpers.commands import as_dict, tool
from tests.helpers.scalars import logged
from tests.helpers.trained import CONFIG, few
from tokennorm.engine.training import plan_training
from tokennorm.findings import Findings, judging
from tokennorm.plan.options import TrainOptions
from tokennorm.plan.schedule import batch_of_lr


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
    assert cfg.param_scheduler[-1].end == 8
    assert (cfg.optim_wrapper.optimizer.lr, batch_of_lr(cfg)) == (pytest.approx(1e-3), 2)  # no second scaling
    assert cfg.default_hooks.ema.type == 'EMAHook'
    printed = capsys.readouterr().out
    _, summary = printed.partition('epoch 1/4')[0].split('This training run:')
    for line in (
        f'data           4 images, 4 classes ({data}/annotations/train.json)',
        f'validation     2 images, 4 classes ({data}/annotations/val.json), after every epoch',
        'image size     short side of 96 pixels',
        'schedule       4 epochs of 2 iterations, CosineAnnealingLR to iteration 8',
        'schedule       shortened from 5 to 4 epochs',
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


def test_padding_does_not_enter_the_detector_that_is_chosen(data, tmp_path):
    """A config that is named stays; a resumed run continues as it began."""

    def kind(config=None, **options):
        with judging(Findings()):
            plan, _ = plan_training(TrainOptions(config, data, out=tmp_path / 'run', init='none', **options))
        return plan.cfg.model.type

    assert kind(model='pvtv2-b2') == 'tokennorm.MaskRCNN'
    assert kind(model='mini') == 'tokennorm.MaskRCNN'
    assert kind(model='mini', cfg_options={'model.type': 'MaskRCNN'}) == 'MaskRCNN'
    assert kind('retinanet_pvtv2-b2_fpn_1x_coco') == 'RetinaNet'
    run = tmp_path / 'run'
    run.mkdir()
    (run / 'mask-rcnn_pvt-mini_fpn.py').write_text("model = dict(type='MaskRCNN')\nwork_dir = 'run'")
    torch.save(dict(state_dict={}, meta={}), run / 'epoch_1.pth')
    (run / 'last_checkpoint').write_text(str(run / 'epoch_1.pth'))
    assert kind(model='mini', resume=True) == 'MaskRCNN'


@pytest.mark.usefixtures('without_report')
def test_the_learning_rate_is_scaled_once(data, tmp_path):
    """By mmengine, where `auto_scale_lr` is on: linearly, from the 8 images per step of the config to 2."""
    options = as_dict(few(**{'auto_scale_lr.enable': True})) | {'param_scheduler': []}
    tokennorm.train(CONFIG, data, epochs=1, image_size=64, work_dir=tmp_path, cfg_options=options)
    rates = [entry['lr'] for entry in logged(tmp_path) if 'lr' in entry]
    assert rates == pytest.approx([2e-3 * 2 / 8] * 2)


@pytest.mark.usefixtures('without_report')
def test_strong_augmentation_trains_and_logs_to_its_own_folder(data, tmp_path):
    DetLocalVisualizer.get_instance('visualizer', save_dir=str(tmp_path / 'of an earlier run in this process'))
    options = as_dict(few(**{'auto_scale_lr.base_batch_size': 2}))
    tokennorm.train(CONFIG, data, epochs=1, image_size=64, work_dir=tmp_path, augment='strong', cfg_options=options)
    cfg = Config.fromfile(next(tmp_path.glob('*.py')))
    assert cfg.optim_wrapper.optimizer.lr == 2e-3  # for the batch size that is named
    kinds = [step.type for step in cfg.train_dataloader.dataset.pipeline]
    assert kinds[:3] == ['Mosaic', 'RandomAffine', 'MixUp']
    assert len(list(tmp_path.glob('2*/vis_data/scalars.json'))) == 1


@pytest.mark.parametrize(('queries', 'limit'), [slow(30, 100), slow(20, 80)])
def test_a_detr_keeps_its_limit_of_detections_where_it_can(queries, limit, data, tmp_path):
    """It picks 100 detections from a score per query and class, of which 20 queries have fewer."""
    small = {
        'model.backbone': dict(type='ResNet', depth=18, base_channels=4),
        'model.neck.in_channels': [8, 16, 32],
        'model.num_queries': queries,
        'model.encoder.num_layers': 1,
        'model.decoder.num_layers': 1,
    }
    name = 'mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco'
    run = dict(epochs=1, image_size=64, batch_size=2, workers=0, device='cpu', init='none', work_dir=tmp_path)
    tokennorm.train(name, data, **run, cfg_options=small)
    cfg = Config.fromfile(next(tmp_path.glob('*.py')))
    assert cfg.model.bbox_head.num_classes == 4
    assert cfg.model.test_cfg.max_per_img == limit
