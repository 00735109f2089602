"""Runs of a study: an interrupted run equals an uncut one bit for bit, arms share initial values, results are kept."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine import Config, DefaultScope
from mmengine.registry import MODELS

from experiments.layer_statistics import dtn_layers
from experiments.study.data import hold_out
from experiments.study.plan import Run, load_study
from experiments.study.results import final_values, keep_results, read_results
from experiments.study.scoring import score_run
from experiments.study.training import (
    SharedInitHook,
    _with_hooks,
    copy_shared,
    is_finished,
    pack_path,
    read_record,
    shared_init,
    train_run,
)
from tests.study_case import make_study
from tokennorm.config.open_config import drop_variables
from tokennorm.registry import HOOKS

TOOL = Path(__file__).resolve().parents[3] / 'projects' / 'experiments' / 'study' / 'run.py'


def weights(study, run):
    return torch.load(study.folder(run) / 'weights.pth', weights_only=False)['state_dict']


@pytest.fixture(scope='module')
def uncut(tmp_path_factory):
    """A study whose pretraining of DTN+DPN with seed 0 is finished."""
    study = make_study(tmp_path_factory.mktemp('study'))
    train_run(study, Run('pretrain', 'DTN+DPN', 0))
    return study


@pytest.mark.slow
def test_interrupted_run_equals_uncut_run(uncut, monkeypatch):
    run = Run('pretrain', 'DTN+DPN', 0)
    cut = make_study(uncut.config.parent, name='cut')

    def interrupt(self, runner, metrics=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SharedInitHook, 'after_val_epoch', interrupt)
        with pytest.raises(KeyboardInterrupt):
            train_run(cut, run)
    record = read_record(cut.folder(run))
    assert not record['finished']
    assert record['seconds'] > 0
    train_run(cut, run)
    record, whole = (read_record(study.folder(run)) for study in (cut, uncut))
    assert record['curve'] == whole['curve']
    assert list(whole['curve']) == ['1', '2']
    one, two = weights(cut, run), weights(uncut, run)
    assert [key for key in two if not torch.equal(one[key], two[key])] == []
    logits = torch.cat([value for key, value in two.items() if key.endswith('_logit')]).sigmoid()
    assert whole['lambda'] == pytest.approx([logits.min().item(), logits.max().item()], abs=1e-4)
    assert whole['parameters'] == sum(value.numel() for value in two.values())
    assert not list(cut.folder(run).glob('epoch_*.pth'))
    before = (cut.folder(run) / 'record.json').read_text()
    train_run(cut, run)
    assert (cut.folder(run) / 'record.json').read_text() == before, 'a finished run was repeated'


@pytest.mark.slow
def test_detector_uses_its_pretraining_and_is_scored(uncut, monkeypatch, tmp_path):
    run = Run('retinanet', 'DTN+DPN', 0)
    started = {}
    before_train = SharedInitHook.before_train

    def noting(self, runner):
        before_train(self, runner)
        started.update({key: value.clone() for key, value in runner.model.state_dict().items()})

    monkeypatch.setattr(SharedInitHook, 'before_train', noting)
    train_run(uncut, run)
    pretrained = weights(uncut, uncut.before(run))
    kept = [key for key in started if key.startswith('backbone.') and 'pos_embed' not in key]
    assert len(kept) > 50
    assert [key for key in kept if not torch.equal(started[key], pretrained[key])] == []
    assert score_run(uncut, Run('pretrain', 'DTN', 0)) is None, 'not trained'
    scores = {}
    for stage in ('pretrain', 'retinanet'):
        run = Run(stage, 'DTN+DPN', 0)
        scores[stage] = score_run(uncut, run)
        record, metric = read_record(uncut.folder(run)), uncut.stages[stage].metric
        value = final_values({(run.arm, 0): record}, metric)[run.arm, 0]
        assert scores[stage]['value'] * (100 if stage == 'retinanet' else 1) == pytest.approx(value, abs=0.051)
    assert score_run(uncut, run) == scores['retinanet'], 'a second detector in the same process'
    assert [path.name for path in keep_results(uncut, tmp_path)] == ['pretrain.json', 'retinanet.json']
    found = read_results(uncut, tmp_path)
    assert {stage: records['DTN+DPN', 0]['scores'] for stage, records in found.items()} == scores
    assert keep_results(uncut, tmp_path) == []


def test_arms_of_a_seed_start_alike_and_seeds_do_not(tmp_path):
    study = make_study(tmp_path)
    starts = {}
    for arm, seed in (('LN', 0), ('DTN+DPN', 0), ('LN', 1)):
        cfg = study.run_config(Run('pretrain', arm, seed))
        with DefaultScope.overwrite_default_scope(cfg.default_scope):
            shared = shared_init(cfg, seed, with_backbone=True)
            model = MODELS.build(cfg.model)
        model.init_weights()
        copied = copy_shared(model, shared)
        starts[arm, seed] = model.state_dict()
        own = sorted(set(starts[arm, seed]) - set(copied))
        assert all('patch_embed' in key or key.endswith(('_logit', 'position')) for key in own), own
        assert ('backbone.stages.0.patch_embed.proj.weight' in own) == (arm == 'DTN+DPN')
    of_ln, of_both, of_other_seed = starts.values()
    shared_keys = [k for k, v in of_ln.items() if k in of_both and of_both[k].shape == v.shape]
    assert len(shared_keys) > 80
    assert all(torch.equal(of_ln[key], of_both[key]) for key in shared_keys)
    assert not torch.equal(of_ln['head.fc.weight'], of_other_seed['head.fc.weight'])


@pytest.mark.slow
def test_whole_grid_by_the_tool(tmp_path):
    study = make_study(tmp_path, seeds=(0, 1))
    main = runpy.run_path(str(TOOL))['main']
    main([str(study.config), '--work-dir', str(study.work_dir), '--jobs', '2'])
    assert all(is_finished(study.folder(run)) for run in study.runs())
    main([str(study.config), '--work-dir', str(study.work_dir), '--score', '--arms', 'LN'])
    scores = [json.loads((study.folder(Run('pretrain', 'LN', seed)) / 'scores.json').read_text()) for seed in (0, 1)]
    assert [entry['images'] for entry in scores] == [12, 12]


def test_initial_values_of_an_arm_by_place(tmp_path):
    study = replace(load_study(TOOL.parent / 'configs' / 'start.py'), work_dir=tmp_path)
    run = Run('pvt_mini', 'start by place', 30)
    cfg = study.run_config(run)
    study.folder(run).mkdir(parents=True)
    written = Config.fromfile(_with_hooks(study, run, cfg), import_custom_modules=False)
    drop_variables(written)  # as training does
    (hook,) = (HOOKS.build(hook) for hook in written.custom_hooks if hook.type == 'tokennorm.SharedInitHook')
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(cfg.model)
    paper = {name: norm.position.clone() for name, norm in dtn_layers(model).items()}
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        hook.before_train(SimpleNamespace(iter=0, cfg=written, seed=30, model=model))
    seen = set()
    for name, norm in dtn_layers(model).items():
        before_attention = name.endswith('norm1')
        seen.add(before_attention)
        mean, var = (0.38, 0.48) if before_attention else (0.22, 0.55)
        assert norm.mean_logit.sigmoid().tolist() == pytest.approx([mean] * norm.num_heads)
        assert norm.var_logit.sigmoid().tolist() == pytest.approx([var] * norm.num_heads)
        assert torch.allclose(norm.position, paper[name] * torch.tensor([0.6, 1.7, 1.7]))
    assert seen == {True, False}


def test_path_keeps_the_last_line_of_a_step(tmp_path):
    rows = [dict(step=0, a=[0.5, 1.0]), dict(step=100, a=[9.0, 9.0]), dict(step=100, a=[2.0, 3.0])]
    (tmp_path / 'path.jsonl').write_text(''.join(f'{json.dumps(row)}\n' for row in rows))
    pack_path(tmp_path)
    path = np.load(tmp_path / 'path.npz')
    assert path['steps'].tolist() == [0, 100]
    assert path['a'].tolist() == [[0.5, 1.0], [2.0, 3.0]]


def test_held_out_images_are_of_the_training_images(tmp_path):
    for name in 'ab':
        (tmp_path / 'all' / 'train' / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / 'all' / 'train' / name / f'{i}.jpg').write_text(f'{name}{i}')
    hold_out(tmp_path / 'out', tmp_path / 'all', per_class=2)
    texts = {
        split: sorted(path.read_text() for path in (tmp_path / 'out' / split).glob('*/*')) for split in ('train', 'val')
    }
    assert [len(texts['train']), len(texts['val'])] == [6, 4]
    assert sorted(texts['train'] + texts['val']) == [f'{name}{i}' for name in 'ab' for i in range(5)]
