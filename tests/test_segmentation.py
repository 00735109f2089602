"""The configs of configs/segmentation: a training step with LayerNorm and DTN, and a short run with its evaluation."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine import Config, DefaultScope
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS
from mmengine.structures import PixelData

from tests.helpers.commands import tool
from tokennorm.norms import DTN

CONFIGS = sorted((Path(__file__).resolve().parents[1] / 'configs' / 'segmentation').glob('*.py'))
LAYERS = [2 * (3 + 4 + 6), 2 * 12]  # DTN layers: in the first three stages of PVT-Small, in all of Swin-T
pytestmark = pytest.mark.slow


@pytest.mark.parametrize('kind', ['LN', 'DTN'])
@pytest.mark.parametrize('path', CONFIGS, ids=lambda path: path.stem)
def test_a_training_step(path, kind):
    from mmseg.structures import SegDataSample
    from mmseg.utils import register_all_modules

    register_all_modules(init_default_scope=False)
    cfg = Config.fromfile(path)
    cfg.model.data_preprocessor.size = (64, 96)
    cfg.model.backbone.update(init_cfg=None, drop_path_rate=0.0, token_norm_cfg=dict(type=kind))
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(cfg.model)
        model.init_weights()
        optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    layers = sum(isinstance(module, DTN) for module in model.modules())
    assert layers == (LAYERS[CONFIGS.index(path)] if kind == 'DTN' else 0)
    before = {name: p.detach().clone() for name, p in model.backbone.named_parameters()}
    sample = SegDataSample(
        gt_sem_seg=PixelData(data=torch.randint(0, 150, (1, 64, 96))), metainfo=dict(img_shape=(64, 96))
    )
    data = dict(inputs=[torch.randint(0, 256, (3, 64, 96))] * 2, data_samples=[sample] * 2)
    losses = model.train().train_step(data, optim_wrapper)
    assert 3 < losses['decode.loss_ce'] < 8  # ln 150 is 5.0
    after = dict(model.backbone.named_parameters())
    assert [name for name, p in before.items() if torch.equal(p, after[name])] == []


def test_a_short_run(tmp_path):
    rng = np.random.default_rng(0)
    for folder, suffix in (('images', 'jpg'), ('annotations', 'png')):
        for split in ('training', 'validation'):
            path = tmp_path / 'data' / folder / split
            path.mkdir(parents=True)
            for i in range(2):
                pixels = rng.integers(0, 151, (64, 64, 3) if suffix == 'jpg' else (64, 64), np.uint8)
                cv2.imwrite(str(path / f'{i}.{suffix}'), pixels)
    options = {f'{split}_dataloader.dataset.data_root': tmp_path / 'data' for split in ('train', 'val', 'test')}
    options |= {f'{split}_dataloader.num_workers': 0 for split in ('train', 'val', 'test')}
    options |= {f'{split}_dataloader.persistent_workers': False for split in ('train', 'val', 'test')}
    options |= {
        'train_dataloader.batch_size': 2,
        'train_cfg.max_iters': 2,
        'train_cfg.val_interval': 2,
        'default_hooks.logger.interval': 1,
        'default_hooks.checkpoint.interval': 2,
        'train_dataloader.dataset.pipeline.2.scale': '(64,64)',
        'train_dataloader.dataset.pipeline.3.crop_size': '(64,64)',
        'test_dataloader.dataset.pipeline.1.scale': '(64,64)',
        'val_dataloader.dataset.pipeline.1.scale': '(64,64)',
        'model.data_preprocessor.size': '(64,64)',
        'model.backbone.init_cfg': 'None',
        'model.backbone.token_norm_cfg.type': 'DTN',
    }
    words = [f'{key}={value}' for key, value in options.items()]
    tool('train')([str(CONFIGS[0]), '--work-dir', str(tmp_path / 'work'), '--cfg-options', *words])
    entries = [json.loads(line) for path in tmp_path.glob('work/*/vis_data/scalars.json') for line in path.open()]
    assert [entry['iter'] for entry in entries if 'loss' in entry] == [1, 2]
    (metrics,) = (entry for entry in entries if 'mIoU' in entry)
    assert 0 <= metrics['mIoU'] <= 100
    assert torch.load(tmp_path / 'work' / 'iter_2.pth', weights_only=False)['meta']['iter'] == 2
