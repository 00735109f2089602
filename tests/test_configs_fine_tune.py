"""configs/fine_tune: detectors of mmdet that start from its COCO weights, here from files of the published layout."""

import json

import numpy as np
import pytest
import torch
from mmdet.datasets import CocoDataset
from mmengine.config import Config

import tokennorm
from experiments.shapes import make_shapes_dataset
from tests.helpers.cases import fast_first, slow
from tests.helpers.configs import build_model, resolve
from tests.helpers.scalars import logged
from tests.helpers.trained import without_report  # noqa: F401 - a fixture
from tests.helpers.weights import randomize
from tokennorm.base.published import PUBLISHED
from tokennorm.checkpoints import Checkpoint, convert_detector
from tokennorm.config.paths import config
from tokennorm.engine.class_layers import class_rows
from tokennorm.engine.resume.sampler import ResumableBatchSampler
from tokennorm.engine.resume.training_state import make_resumable
from tokennorm.engine.training import plan_training
from tokennorm.findings import Findings, judging
from tokennorm.plan.options import MODEL_NAMES, TrainOptions

UPSTREAM = {  # mmdet's config of each published file
    'rtmdet-tiny': 'rtmdet/rtmdet_tiny_8xb32-300e_coco',
    'rtmdet-s': 'rtmdet/rtmdet_s_8xb32-300e_coco',
    'rtmdet-ins-tiny': 'rtmdet/rtmdet-ins_tiny_8xb32-300e_coco',
    'rtmdet-ins-s': 'rtmdet/rtmdet-ins_s_8xb32-300e_coco',
    'ssdlite': 'ssd/ssdlite_mobilenetv2-scratch_8xb24-600e_coco',
}
CLASSES = CocoDataset.METAINFO['classes']
CLASS_LAYERS = {'rtmdet-tiny': 'bbox_head.rtm_cls.1.weight', 'rtmdet-ins-tiny': 'bbox_head.rtm_cls.1.weight'}


def upstream_model(name):
    cfg = Config.fromfile(config(f'mmdet::{UPSTREAM[name]}'))
    cfg.model.backbone.init_cfg = None
    torch.manual_seed(0)
    model = build_model(cfg)
    randomize(model, 0.02)
    return model


def published(path, name):
    """A file as mmdet's authors published it: names and shapes of mmdet's config, the meta of mmdet 3.0rc or 2."""
    of_mmdet_2 = dict(CLASSES=CLASSES, mmdet_version='2.13.0', config='model = dict()', epoch=120)
    meta = of_mmdet_2 if name == 'ssdlite' else dict(dataset_meta=dict(CLASSES=CLASSES, PALETTE=[]), epoch=300)
    torch.save(dict(meta=meta, state_dict=upstream_model(name).state_dict()), path)
    return path


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Writes the file of a published detector where a download would be."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    folder = tmp_path / 'torch' / 'hub' / 'checkpoints'
    folder.mkdir(parents=True)
    return lambda name: published(folder / PUBLISHED[name].url.rpartition('/')[2], name)


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """Data of three classes without `star`, the first of which is COCO's `person`: with boxes, and with masks."""
    found = {}
    for kind in ('boxes', 'masks'):
        found[kind] = make_shapes_dataset(tmp_path_factory.mktemp('data') / kind, 4, 2, 64)
        for split in ('train', 'val'):
            path = found[kind] / 'annotations' / f'{split}.json'
            content = json.loads(path.read_text())
            content['categories'][0]['name'] = 'person'
            for one in content['annotations']:
                one.pop('segmentation' if kind == 'boxes' else 'score', None)
            path.write_text(json.dumps(content))
    return found


def planned(data, tmp_path, **options):
    with judging(Findings()):
        plan, weights = plan_training(TrainOptions(data=data, out=tmp_path / 'run', **options))
    return plan.cfg, weights.description


@pytest.mark.parametrize('name', UPSTREAM)
def test_a_config_has_the_parameters_of_the_published_file(name):
    cfg = resolve(config(PUBLISHED[name].config))
    with torch.device('meta'):
        models = build_model(cfg), build_model(resolve(config(f'mmdet::{UPSTREAM[name]}')))
    ours, theirs = ({key: value.shape for key, value in model.state_dict().items()} for model in models)
    assert ours == theirs
    numbers = sum(value.numel() for values in (models[0].parameters(), models[0].buffers()) for value in values)
    assert PUBLISHED[name].size == round(4 * numbers / 1e6)  # levels share layers, which a file has once
    for place in ('data_preprocessor', 'test_cfg'):
        assert cfg.model[place] == resolve(config(f'mmdet::{UPSTREAM[name]}')).model[place]


@pytest.mark.parametrize('model', ['rtmdet-tiny', 'rtmdet-s', 'ssdlite'])
@pytest.mark.parametrize('kind', ['boxes', 'masks'])
def test_a_model_of_the_option_starts_from_coco(model, kind, folders, tmp_path):
    cfg, description = planned(folders[kind], tmp_path, model=model, batch_size=1)
    published = next(one for one in PUBLISHED.values() if one.config == MODEL_NAMES[model][kind == 'masks'])
    assert cfg.load_from == published.url
    assert f'the COCO detector {published.name}' in description
    assert cfg.train_cfg.max_epochs == cfg.param_scheduler[1].end == 12
    assert ('segm' in cfg.val_evaluator.metric) == (kind == 'masks' and model != 'ssdlite')
    with pytest.raises(tokennorm.UserError, match=f'--model {model} is a CNN, without LayerNorm to replace'):
        planned(folders[kind], tmp_path, model=model, norm='dtn')


def test_an_epoch_of_ssdlite_ends_without_a_batch_of_one_image():
    cfg = resolve(config(PUBLISHED['ssdlite'].config))
    make_resumable(cfg)
    loader = cfg.train_dataloader
    options = {key: value for key, value in loader.batch_sampler.items() if key != 'type'}
    sampler = ResumableBatchSampler(range(9), loader.batch_size, **options)
    assert [len(batch) for batch in sampler] == [8]


def test_few_images_of_a_class_on_a_cpu_name_the_coco_start(folders, tmp_path, capsys):
    planned(folders['boxes'], tmp_path)
    line = 'With 4 images of 4 classes try --model rtmdet-tiny: it downloads COCO weights (20 MB)'
    assert line in capsys.readouterr().out
    planned(folders['masks'], tmp_path, model='mini')
    assert '--model rtmdet-tiny' not in capsys.readouterr().out


@pytest.mark.parametrize('name', fast_first(CLASS_LAYERS, 'rtmdet-tiny'))
def test_rows_of_classes_are_taken_by_name(name, tmp_path):
    cfg = Config.fromfile(config(PUBLISHED[name].config))
    cfg.model.backbone.init_cfg = None
    cfg.model.bbox_head.num_classes = 3
    model, checkpoint = build_model(cfg), Checkpoint.read(published(tmp_path / 'file.pth', name))
    rows, line = class_rows(cfg, model, checkpoint, ['cell', 'toothbrush', 'person'])
    assert line == 'classes: 2 of 3 rows taken by name, in another order, 1 newly initialized'
    key = CLASS_LAYERS[name]
    old, initial = checkpoint.state_dict[key], model.state_dict()[key]
    assert torch.equal(rows[key](initial), torch.stack([initial[0], old[79], old[0]]))
    others = {key: value for key, value in checkpoint.state_dict.items() if key not in rows}
    converted, report = convert_detector(model, others, 'file.pth', new_heads=True)
    assert set(report.missing) == set(rows)
    assert not report.unexpected
    assert converted.keys() | rows.keys() == model.state_dict().keys()


@pytest.mark.usefixtures('without_report')
@pytest.mark.parametrize('name', [slow(name) for name in UPSTREAM])
def test_a_published_file_is_fine_tuned_and_detects(name, cached, folders, tmp_path, capsys):
    file = Checkpoint.read(cached(name))
    model, kind = name.replace('-ins', ''), 'masks' if 'ins' in name else 'boxes'
    options = {'default_hooks.logger.interval': 1}
    size = dict(image_size=96) if name != 'ssdlite' else {}
    run = dict(epochs=2, batch_size=2, workers=0, seed=0, work_dir=tmp_path / 'run', cfg_options=options, **size)
    result = tokennorm.train(data=folders[kind], model=model, **run)
    assert 0 <= result.metrics['coco/bbox_mAP'] <= 1
    printed = capsys.readouterr().out
    assert f'Initial weights: the COCO detector {name}, ' in printed
    assert 'classes: 1 of 4 rows taken by name, 3 new' in printed
    rates, cfg = [one['lr'] for one in logged(tmp_path / 'run') if 'lr' in one], resolve(config(PUBLISHED[name].config))
    scale = 2 / cfg.auto_scale_lr.base_batch_size
    assert max(rates) == pytest.approx(cfg.optim_wrapper.optimizer.lr * (scale if name == 'ssdlite' else scale**0.5))
    trained = Checkpoint.read(tmp_path / 'run' / 'epoch_2.pth').state_dict
    same = [key for key in trained if key in file.state_dict and trained[key].shape == file.state_dict[key].shape]
    assert len(same) > 0.9 * len(trained)
    far = [(trained[key] - file.state_dict[key]).abs().max() for key in same if key.endswith('conv.weight')]
    assert 0 < max(far) < 0.1
    for source in (name, tmp_path / 'run'):
        detector = tokennorm.Detector(source, device='cpu', options={'model.test_cfg.score_thr': 0.0})
        found = detector(np.full((60, 80, 3), 90, np.uint8), score_threshold=0.0)
        assert len(found) > 0 or 'ins' in name  # random weights may give no side above 0
    assert tokennorm.Detector(name, device='cpu').classes == tuple(CLASSES)
