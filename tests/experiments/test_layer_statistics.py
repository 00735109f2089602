"""lambda in every visualization backend, and not in the way of what else reads the logs."""

import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.runner import Runner

from experiments.layer_statistics import LAMBDA, LambdaHook
from tests.helpers.scalars import logged
from tokennorm.norms import DTN
from tokennorm.report.scalars import read_scalars


class Toy(BaseModel):
    """Learns to return zeros, two norms deep."""

    def __init__(self, norms) -> None:
        super().__init__()
        self.norms = norms

    def forward(self, inputs, mode):
        loss = self.norms(torch.stack(inputs)).square().mean() + sum(p.sum() for p in self.parameters() if p.ndim == 1)
        return dict(loss=loss) if mode == 'loss' else [loss]


class Score(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results.append(1.0)

    def compute_metrics(self, results):
        return dict(score=1.0)


def train(work_dir, norms, epochs=3):
    """Epochs of 4 iterations."""
    inputs = [dict(inputs=torch.randn(3, 3, 4))] * 4
    loader = dict(dataset=inputs, batch_size=1, sampler=dict(type='DefaultSampler', shuffle=False))
    runner = Runner(
        model=Toy(norms),
        work_dir=str(work_dir),
        train_dataloader=loader,
        val_dataloader=loader,
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
        train_cfg=dict(by_epoch=True, max_epochs=epochs),
        val_cfg=dict(),
        val_evaluator=[Score(prefix='coco')],
        default_hooks=dict(logger=dict(type='LoggerHook', interval=2)),
        custom_hooks=[LambdaHook(interval=5)],
        visualizer=dict(type='Visualizer', vis_backends=[dict(type='LocalVisBackend')], name=work_dir.name),
        experiment_name=work_dir.name,
    )
    runner.train()
    return runner


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    work_dir = tmp_path_factory.mktemp('lambda')
    return work_dir, train(work_dir, torch.nn.Sequential(DTN(4, 2), DTN(4, 1, only_var=True)))


def lambda_curves(work_dir):
    return {name.removeprefix(LAMBDA): curve for name, curve in read_scalars(work_dir).items() if LAMBDA in name}


def test_every_layer_is_logged_from_start_to_end(trained):
    work_dir, runner = trained
    curves = lambda_curves(work_dir)
    assert list(curves) == [
        *(f'norms.0.{kind}.{statistic}' for kind in ('mean', 'var') for statistic in ('mean', 'min', 'max')),
        *(f'norms.1.var.{statistic}' for statistic in ('mean', 'min', 'max')),
    ]
    assert all(list(curve) == [0, 5, 10, 12] for curve in curves.values())
    ratios = runner.model.norms[0].mean_logit.sigmoid()
    for statistic in ('mean', 'min', 'max'):
        curve = curves[f'norms.0.mean.{statistic}']
        assert curve[0] == 0.5
        assert curve[12] == pytest.approx(getattr(ratios, statistic)().item())
    assert curves['norms.0.mean.mean'][5] < 0.5, 'lambda was not trained'


def test_lambda_hook_keeps_log_lines_and_report_curves(trained):
    work_dir, _ = trained
    (log,) = work_dir.glob('*/*.log')
    assert 'lambda/' not in log.read_text()
    scalars = read_scalars(work_dir)
    assert list(scalars['loss']) == [2, 4, 6, 8, 10, 12]
    assert scalars['coco/score'] == {1: 1.0, 2: 1.0, 3: 1.0}


def test_a_model_without_dtn_is_left_alone(tmp_path):
    train(tmp_path / 'plain', torch.nn.LayerNorm(4), epochs=1)
    assert lambda_curves(tmp_path / 'plain') == {}
    assert [entry['step'] for entry in logged(tmp_path / 'plain')] == [2, 4, 1]
