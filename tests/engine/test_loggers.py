"""A logger that the user chose cannot end training: one line at the start, one warning later."""

import sys
from types import SimpleNamespace

import pytest
from mmengine.visualization import vis_backend

from tests.helpers import toy_training as toys
from tests.helpers.scalars import logged
from tokennorm.base.messages import UserError
from tokennorm.engine.loggers import GuardedBackend, MLflowBackend, as_set_outside, guard
from tokennorm.engine.runner import build_runner, run

MOMENTS = ('init', 'update', 'log', 'join')  # wandb's functions that mmengine calls: start, config, values, end


class ServerError(Exception):
    pass


@pytest.fixture
def wandb(monkeypatch):
    """A module in place of wandb, which counts its calls, and may fail at one."""

    def called(name, *_, **__):
        fake.calls.append(name)
        if name == fake.fails and fake.calls.count(name) in fake.times:
            raise fake.error

    fake = SimpleNamespace(calls=[], fails='', times=range(1000), error=ServerError('HTTP 503\n  try later.'))
    for name in MOMENTS:
        setattr(fake, name, lambda *_, name=name, **__: called(name))
    fake.config, fake.run = SimpleNamespace(update=fake.update), SimpleNamespace(log_code=lambda **_: None)
    monkeypatch.setitem(sys.modules, 'wandb', fake)
    return fake


def trained(tmp_path, *backends, **options):
    cfg = toys.config(tmp_path, train_cfg=toys.EPOCHS, **options)
    cfg.default_hooks.logger = dict(type='LoggerHook', interval=1)
    cfg.visualizer = dict(type='Visualizer', vis_backends=[dict(type='LocalVisBackend'), *backends])
    cfg.log_level = 'WARNING'
    runner = build_runner(cfg, ('train', 'val'))
    run(runner, '')
    return runner


WANDB = dict(type='WandbVisBackend')


@pytest.mark.parametrize('error', [ServerError('HTTP 503\n  try later.'), ImportError('no module'), SystemExit('bye')])
@pytest.mark.parametrize('moment', MOMENTS[:2])
def test_at_the_start_it_is_one_line_with_the_way_out(tmp_path, wandb, moment, error):
    wandb.fails, wandb.error = moment, error
    with pytest.raises(UserError) as found:
        trained(tmp_path, WANDB)
    text = ' '.join(str(error).split()).rstrip('.')
    assert str(found.value) == (
        f'the logger wandb: {type(error).__name__}: {text}; run `wandb login`, or set WANDB_MODE=offline; '
        'or train without wandb'
    )
    assert 'join' not in wandb.calls


@pytest.mark.parametrize('moment', MOMENTS[2:])
def test_later_it_is_one_warning_and_training_continues(tmp_path, wandb, moment, capsys):
    wandb.fails = moment
    runner = trained(tmp_path, WANDB)
    assert runner.epoch == runner.max_epochs
    assert len(logged(tmp_path)) == 16 + 2
    lines = [line for line in ''.join(capsys.readouterr()).splitlines() if 'logger wandb' in line]
    assert len(lines) == 1
    assert 'the logger wandb: ServerError: HTTP 503 try later. Training continues; vis_data/scalars.json' in lines[0]
    assert wandb.calls.count('join') == 1


def test_an_answer_that_failed_once_costs_one_value_only(tmp_path, wandb):
    wandb.fails, wandb.times = 'log', [3]
    trained(tmp_path, WANDB)
    assert wandb.calls.count('log') == 18 - 1
    wandb.times = range(1000)
    wandb.calls.clear()
    trained(tmp_path / 'never', WANDB)
    assert wandb.calls.count('log') == 4  # after 0, 1, 2 and 4 that are left out


def test_it_ends_where_training_ends_by_an_error(tmp_path, wandb):
    with pytest.raises(toys.Stop):
        trained(tmp_path, WANDB, iteration=5)
    assert wandb.calls[-1] == 'join'
    wandb.calls.clear()
    with pytest.raises(UserError, match='data sampler'):  # between the start and the first iteration
        trained(tmp_path / 'refused', WANDB, sampler=None)
    assert wandb.calls[-1] == 'join'


def test_each_backend_is_called_by_its_own_name(tmp_path, wandb):
    runner = trained(tmp_path, WANDB, dict(WANDB, name='other'))
    assert runner.visualizer.get_backend('WandbVisBackend').experiment is wandb
    assert wandb.calls.count('join') == 2


def test_files_of_mmengine_are_not_guarded():
    """A full disk ends training."""
    local, other = vis_backend.LocalVisBackend('a'), vis_backend.TensorboardVisBackend('a')
    guard(backends := dict(local=local, other=other), print)
    assert backends['local'] is local
    assert isinstance(backends['other'], GuardedBackend)


@pytest.mark.parametrize(
    ('variables', 'entry', 'options'),
    [
        (dict(WANDB_DIR='/w'), WANDB, dict(init_kwargs=dict(dir='/w'))),
        (dict(WANDB_DIR='/w'), dict(WANDB, init_kwargs=dict(dir='/c', id=1)), dict(init_kwargs=dict(dir='/c', id=1))),
        (dict(WANDB_MODE='offline'), WANDB, {}),
        (dict(NEPTUNE_PROJECT='a/b'), dict(type='NeptuneVisBackend'), dict(init_kwargs={})),
        ({}, dict(type='NeptuneVisBackend'), {}),
        (dict(NEPTUNE_MODE='x'), dict(type='NeptuneVisBackend', init_kwargs=dict(a=1)), dict(init_kwargs=dict(a=1))),
        ({}, dict(type='mmengine.MLflowVisBackend', exp_name='e'), dict(exp_name='e', name='MLflowVisBackend')),
    ],
)  # fmt: skip
def test_what_is_set_outside_counts(variables, entry, options, monkeypatch):
    for name in ('WANDB_DIR', 'NEPTUNE_PROJECT', 'NEPTUNE_MODE', 'NEPTUNE_API_TOKEN'):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = as_set_outside(entry)
    assert {key: value for key, value in found.items() if key != 'type'} == options
    assert found['type'] == (MLflowBackend if 'MLflow' in entry['type'] else entry['type'])
    assert as_set_outside(built := vis_backend.LocalVisBackend('a')) is built


@pytest.mark.slow
@pytest.mark.parametrize('store', ['', 'variable', 'call'])
def test_mlflow_logs_where_it_was_told_to(store, tmp_path, monkeypatch):
    """The real package: without a store a database in the work directory, and the next run has its own."""
    mlflow = pytest.importorskip('mlflow', reason='mlflow is not installed')
    monkeypatch.chdir(tmp_path)
    for name in ('MLFLOW_TRACKING_URI', 'MLFLOW_EXPERIMENT_NAME', 'MLFLOW_EXPERIMENT_ID'):
        monkeypatch.delenv(name, raising=False)
    uri = f'sqlite:///{tmp_path}/user.db'
    if store == 'variable':
        monkeypatch.setenv('MLFLOW_TRACKING_URI', uri)
        monkeypatch.setenv('MLFLOW_EXPERIMENT_NAME', 'mine')
    elif store == 'call':
        mlflow.set_tracking_uri(uri)
    for number in range(2):
        trained(tmp_path / f'run{number}', dict(type='MLflowVisBackend'))
        assert mlflow.active_run() is None
        assert mlflow.is_tracking_uri_set() == bool(store)
        client = mlflow.MlflowClient(uri if store else f'sqlite:///{tmp_path}/run{number}/mlflow.db')
        names = {'': f'run{number}', 'variable': 'mine', 'call': 'Default'}
        experiment = client.get_experiment_by_name(names[store])
        runs = client.search_runs([experiment.experiment_id])
        assert len(runs) == (number + 1 if store else 1)
        assert len(client.get_metric_history(runs[0].info.run_id, 'loss')) == 16
        assert runs[0].info.status == 'FINISHED'
    assert not (tmp_path / 'mlruns').exists() or store
    if store == 'call':
        mlflow.set_tracking_uri(None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'backend', 'variables'),
    [
        ('wandb', 'WandbVisBackend', dict(WANDB_MODE='offline', WANDB_SILENT='true')),
        ('tensorboard', 'TensorboardVisBackend', {}),
        ('clearml', 'ClearMLVisBackend', dict(CLEARML_OFFLINE_MODE='1', CLEARML_PROJECT='p')),
    ],
)
def test_real_loggers_train(name, backend, variables, tmp_path, monkeypatch, capsys):
    pytest.importorskip(name, reason=f'{name} is not installed')
    monkeypatch.chdir(tmp_path)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    runner = trained(tmp_path / 'run', dict(type=backend))
    assert runner.epoch == runner.max_epochs
    assert f'the logger {name}' not in capsys.readouterr().err


@pytest.mark.slow
def test_real_wandb_without_a_login_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip('wandb', reason='wandb is not installed')
    monkeypatch.setenv('HOME', str(tmp_path))
    for variable in ('WANDB_API_KEY', 'WANDB_MODE'):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UserError, match=r'the logger wandb: UsageError: .*API key.*; run `wandb login`'):
        trained(tmp_path, WANDB)
