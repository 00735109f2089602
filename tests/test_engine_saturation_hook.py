"""The fraction of saturated values in the scalars of a training run."""

import json

import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn

from tokennorm.engine.hooks.layer_statistics import SaturationHook
from tokennorm.norms import Derf, DynamicTanh


class Toy(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.Sequential(DynamicTanh(4, alpha_init_value=0.5), DynamicTanh(4, alpha_init_value=3.0), Derf(4))

    def forward(self, inputs, mode):
        return dict(loss=self.norms(torch.stack(inputs)).square().mean())


def test_every_second_iteration_has_the_fraction_of_each_layer(tmp_path):
    values = torch.tensor([-8.0, -3.0, 1.0, 5.0]).expand(3, 3, 4)  # times 0.5: two of four are beyond 2
    Runner(
        model=Toy(),
        work_dir=str(tmp_path),
        train_dataloader=dict(
            dataset=[dict(inputs=values)] * 4, batch_size=1, sampler=dict(type='DefaultSampler', shuffle=False)
        ),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.0)),
        train_cfg=dict(by_epoch=True, max_epochs=1),
        custom_hooks=[SaturationHook(interval=2)],
        visualizer=dict(type='Visualizer', vis_backends=[dict(type='LocalVisBackend')], name='saturation'),
        experiment_name='saturation',
    ).train()
    lines = [json.loads(line) for line in next(tmp_path.rglob('scalars.json')).read_text().splitlines()]
    entries = [line for line in lines if any(key.startswith('saturation/') for key in line)]
    assert [entry['step'] for entry in entries] == [1, 3]
    # tanh of these times 3 is (-3, -2.7, 1.4, 2.96): three of four are beyond 2
    assert {key: value for key, value in entries[0].items() if key != 'step'} == {
        'saturation/norms.0': 0.5,
        'saturation/norms.1': 0.75,
    }
