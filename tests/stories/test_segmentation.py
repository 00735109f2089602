"""The configs of configs/segmentation: a training step with LayerNorm and DTN."""

from pathlib import Path

import pytest
import torch
from mmengine import Config, DefaultScope
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS
from mmengine.structures import PixelData

from tokennorm.norms import DTN

CONFIGS = sorted((Path(__file__).resolve().parents[2] / 'configs' / 'segmentation').glob('*.py'))
LAYERS = dict(fpn=2 * (3 + 4 + 6), upernet=2 * 12)  # with DTN: the first three stages of PVT-Small, all of Swin-T
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
    assert layers == (LAYERS[path.stem.split('_')[0]] if kind == 'DTN' else 0)
    before = {name: p.detach().clone() for name, p in model.backbone.named_parameters()}
    sample = SegDataSample(
        gt_sem_seg=PixelData(data=torch.randint(0, 150, (1, 64, 96))), metainfo=dict(img_shape=(64, 96))
    )
    data = dict(inputs=[torch.randint(0, 256, (3, 64, 96))] * 2, data_samples=[sample] * 2)
    losses = model.train().train_step(data, optim_wrapper)
    assert 3 < losses['decode.loss_ce'] < 8  # ln 150 is 5.0
    after = dict(model.backbone.named_parameters())
    assert [name for name, p in before.items() if torch.equal(p, after[name])] == []
