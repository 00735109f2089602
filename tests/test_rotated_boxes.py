"""The example of docs/guides/other_tasks.md for mmrotate, which is not among the requirements of the tests."""

import re
from pathlib import Path

import pytest
import torch
from mmengine import Config, DefaultScope
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS
from mmengine.structures import InstanceData

GUIDE = Path(__file__).resolve().parents[1] / 'docs' / 'guides' / 'other_tasks.md'


@pytest.mark.slow
def test_a_training_step(tmp_path):
    pytest.importorskip('mmrotate', reason='pip install onedl-mmrotate==1.2.1')
    from mmdet.structures import DetDataSample
    from mmrotate.structures import RotatedBoxes
    from mmrotate.utils import register_all_modules

    register_all_modules(init_default_scope=False)
    (text,) = re.findall(r"```python\n(_base_ = 'mmrotate.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / 'config.py').write_text(text)
    cfg = Config.fromfile(tmp_path / 'config.py')
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(cfg.model)
        optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    boxes = RotatedBoxes(torch.tensor([[40.0, 40.0, 50.0, 20.0, 0.3], [80.0, 60.0, 30.0, 30.0, -0.7]]))
    sample = DetDataSample(
        gt_instances=InstanceData(bboxes=boxes, labels=torch.tensor([2, 14])),
        metainfo=dict(img_shape=(96, 128), ori_shape=(96, 128), pad_shape=(96, 128), scale_factor=(1.0, 1.0)),
    )
    sample.ignored_instances = InstanceData(bboxes=RotatedBoxes(torch.zeros(0, 5)))
    before = {name: p.detach().clone() for name, p in model.backbone.named_parameters()}
    data = dict(inputs=[torch.randint(0, 256, (3, 96, 128))] * 2, data_samples=[sample] * 2)
    losses = model.train().train_step(data, optim_wrapper)
    assert {'loss_cls', 'loss_bbox'} <= set(losses)
    assert all(loss.isfinite() for loss in losses.values() if isinstance(loss, torch.Tensor)), losses
    after = dict(model.backbone.named_parameters())
    assert [name for name, p in before.items() if torch.equal(p, after[name])] == []
