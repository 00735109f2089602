"""A loss or a gradient that is not finite leaves the weights alone, is named, and stops training when it recurs."""

import math

import pytest
import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import nn

from tests.helpers.toy_training import amp_on_cpu  # noqa: F401 - a fixture
from tokennorm.engine.hooks.non_finite import NonFiniteError

pytestmark = pytest.mark.usefixtures('amp_on_cpu')


@MODELS.register_module(force=True)
class LineModel(BaseModel):
    """loss = mean((w x)^2) + v: a NaN or an infinity in x reaches both the loss and the gradient of w."""

    def __init__(self, poison='input'):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.5))
        self.v = nn.Parameter(torch.tensor(0.25))
        self.norm = nn.BatchNorm1d(1, affine=False)  # of which the loss is independent
        self.poison = poison

    def forward(self, inputs, data_samples=None, mode='loss'):
        x = torch.stack(inputs)
        self.norm(torch.cat([x, x + 1]))
        rest = self.v
        if self.poison == 'gradient' and x.max() > 90:
            rest = self.v + torch.sqrt(self.v * 0)  # whose slope is infinite
        return dict(loss_line=(self.w * x).square().mean(), loss_rest=rest, accuracy=torch.tensor(math.nan))


class Samples(torch.utils.data.Dataset):
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return dict(
            inputs=torch.tensor([self.values[i]]), data_samples=BaseDataElement(metainfo=dict(img_path=f'{i}.jpg'))
        )


def run(tmp_path, values, max_occurrences=3, optim_wrapper=None, poison='input', batch_size=1):
    """Trains on samples of those values in their order, and returns the runner and the error."""
    runner = Runner(
        model=dict(type='LineModel', poison=poison),
        work_dir=str(tmp_path),
        train_dataloader=dict(
            dataset=Samples(values),
            batch_size=batch_size,
            sampler=dict(type='DefaultSampler', shuffle=False),
            collate_fn=dict(type='pseudo_collate'),
        ),
        train_cfg=dict(by_epoch=True, max_epochs=1),
        optim_wrapper=optim_wrapper or dict(optimizer=dict(type='SGD', lr=0.1)),
        default_hooks=dict(non_finite=dict(type='tokennorm.NonFiniteHook', max_occurrences=max_occurrences)),
        log_level='ERROR',
        experiment_name=tmp_path.name,
    )
    try:
        runner.train()
    except NonFiniteError as error:
        return runner, str(error)
    return runner, None


def weights_after(values):
    """SGD's w and v after those samples."""
    w, v = 0.5, 0.25
    for x in values:
        w, v = w - 0.1 * 2 * w * x * x, v - 0.1
    return pytest.approx((w, v), rel=1e-5)


def of(runner):
    return runner.model.w.item(), runner.model.v.item()


NAN = math.nan


def test_large_gradients_whose_squares_overflow_are_finite(tmp_path):
    runner, error = run(tmp_path, [3e12] * 4, optim_wrapper=dict(optimizer=dict(type='SGD', lr=1e-30)))
    assert error is None
    assert runner.model.w < 0.5


def test_bad_steps_are_skipped_and_three_in_a_row_stop(tmp_path):
    runner, error = run(tmp_path, [1.0, NAN, 2.0, math.inf, NAN, NAN, 1.0])
    assert of(runner) == weights_after([1.0, 2.0])
    assert error == (
        'iteration 6: the loss is not finite. Images: 5.jpg. Occurrence 3 in a row, at which training stops'
    )


def test_max_occurrences_of_one_stops_at_once(tmp_path):
    _, error = run(tmp_path, [1.0, 2.0, 1.0, NAN], batch_size=2, max_occurrences=1)
    assert error.startswith('iteration 2: ')
    assert 'Images: 2.jpg, 3.jpg. ' in error


def test_bad_gradient_with_finite_loss(tmp_path):
    runner, error = run(tmp_path, [1.0, 99.0, 1.0], max_occurrences=1, poison='gradient')
    assert 'iteration 2: the gradient is not finite' in error
    assert of(runner) == weights_after([1.0])


@pytest.mark.parametrize('scaled', [False, True])
def test_bad_step_is_skipped_with_clipping(tmp_path, scaled):
    scaler = dict(type='AmpOptimWrapper', loss_scale=dict(init_scale=2.0)) if scaled else dict()
    wrapper = scaler | dict(optimizer=dict(type='SGD', lr=0.1), clip_grad=dict(max_norm=1e3))
    runner, error = run(tmp_path, [1.0, NAN, math.inf], max_occurrences=2, optim_wrapper=wrapper)
    assert error.startswith('iteration 3: the loss is not finite')
    assert of(runner) == weights_after([1.0])


def test_accumulated_step_with_a_bad_batch_is_skipped(tmp_path):
    wrapper = dict(optimizer=dict(type='SGD', lr=0.1), accumulative_counts=3)
    runner, error = run(tmp_path, [1.0, 1.0, 1.0, NAN, 1.0, 1.0, 2.0, 2.0, 2.0], optim_wrapper=wrapper)
    assert error is None
    assert of(runner) == weights_after([1.0, 2.0])
    _, error = run(tmp_path / 'each', [1.0, 1.0, NAN, NAN, 1.0, 1.0], max_occurrences=3, optim_wrapper=wrapper)
    assert error.startswith('iteration 6: the gradient is not finite')


def test_overflow_handled_by_the_loss_scaler(tmp_path):
    """A scale of 1e38 makes the scaled gradients infinite until it has been halved some times."""
    wrapper = dict(type='AmpOptimWrapper', loss_scale=dict(init_scale=2.0**127), optimizer=dict(type='SGD', lr=0.1))
    runner, error = run(tmp_path, [2.0] * 5, max_occurrences=1, optim_wrapper=wrapper)
    assert error is None
    assert runner.optim_wrapper.loss_scaler.get_scale() < 2.0**127
    assert of(runner)[0] < 0.5, 'it continued once the scale was right'


def test_clipping_by_norm_computes_the_norm_once(tmp_path, monkeypatch):
    norms = []
    plain = torch.nn.utils.get_total_norm
    monkeypatch.setattr(
        torch.nn.utils, 'get_total_norm', lambda *args, **kwargs: norms.append(1) or plain(*args, **kwargs)
    )
    for clip_grad, count in ((dict(max_norm=1e3), 0), (dict(clip_value=1e3, type='value'), 2), (None, 2)):
        norms.clear()
        wrapper = dict(optimizer=dict(type='SGD', lr=0.1), clip_grad=clip_grad)
        runner, error = run(tmp_path / str(clip_grad), [1.0, 2.0], optim_wrapper=wrapper)
        assert error is None
        assert of(runner) == weights_after([1.0, 2.0])
        assert len(norms) == count
    for clip_grad in (dict(max_norm=1e3), dict(clip_value=1e3, type='value')):
        wrapper = dict(optimizer=dict(type='SGD', lr=0.1), clip_grad=clip_grad)
        runner, error = run(tmp_path / f'bad {clip_grad}', [1.0, 99.0, 1.0], 1, wrapper, 'gradient')
        assert 'iteration 2: the gradient is not finite' in error
