"""Pieces: they equal an uninterrupted run bit for bit, arms share initial values, a lost validation is repeated."""

import json
import re
import runpy
from pathlib import Path

import pytest
import torch
from mmengine import DefaultScope
from mmengine.registry import MODELS

from experiments.robustness.evaluation import CorruptedTest
from experiments.robustness.names import CORRUPTIONS
from experiments.study import pieces, plan
from experiments.study.corrupted import add_corrupted
from experiments.study.pieces import copy_shared, run_piece, shared_init
from experiments.study.plan import Run
from experiments.study.records import is_finished, new_record, read_record, write_record
from experiments.study.scoring import score_run
from tests.study_case import make_study
from tokennorm.messages import UserError

TOOL = Path(__file__).resolve().parents[1] / 'tools' / 'study.py'
NO_TIME = 1e-6  # minutes: stops after every epoch


def weights(study, run):
    return torch.load(study.folder(run) / 'weights.pth', weights_only=False)['state_dict']


@pytest.fixture(scope='module')
def uncut(tmp_path_factory):
    """A study whose pretraining of DTN+DPN with seed 0 is finished, in one piece, with a worker that loads data."""
    study = make_study(tmp_path_factory.mktemp('study'), workers=1)
    run_piece(study, Run('pretrain', 'DTN+DPN', 0), minutes=10)
    return study


def test_a_run_in_pieces_is_the_uncut_one(uncut):
    """Also if the validation at the end of a piece was lost."""
    run = Run('pretrain', 'DTN+DPN', 0)
    cut = make_study(uncut.config.parent, workers=1, name='cut')
    run_piece(cut, run, NO_TIME)
    record = read_record(cut.folder(run))
    assert (list(record['curve']), record['finished'], record['pieces']) == (['1'], False, 1)
    write_record(cut.folder(run), record | dict(curve={}))
    run_piece(cut, run, NO_TIME)
    record, whole = (read_record(study.folder(run)) for study in (cut, uncut))
    assert (record['finished'], record['pieces']) == (True, 2)
    assert (whole['finished'], whole['pieces']) == (True, 1)
    assert record['curve'] == whole['curve']
    logits = [value for key, value in weights(uncut, run).items() if key.endswith('_logit')]
    assert whole['lambda'] == [
        pytest.approx(min(x.sigmoid().min().item() for x in logits), abs=1e-4),
        pytest.approx(max(x.sigmoid().max().item() for x in logits), abs=1e-4),
    ]
    assert whole['lambda'][0] < 0.5 < whole['lambda'][1]
    assert list(record['curve']) == ['1', '2']
    one, two = weights(cut, run), weights(uncut, run)
    assert [key for key in two if not torch.equal(one[key], two[key])] == []
    assert not list(cut.folder(run).glob('epoch_*.pth'))
    before = (cut.folder(run) / 'record.json').read_text()
    run_piece(cut, run, NO_TIME)
    assert (cut.folder(run) / 'record.json').read_text() == before, 'a finished run was repeated'


def test_a_detector_starts_from_its_own_pretraining(uncut, monkeypatch):
    run = Run('retinanet', 'DTN+DPN', 0)
    started = {}
    before_train = pieces.PieceHook.before_train

    def noting(self, runner):
        before_train(self, runner)
        started.update({key: value.clone() for key, value in runner.model.state_dict().items()})

    monkeypatch.setattr(pieces.PieceHook, 'before_train', noting)
    run_piece(uncut, run, minutes=10)
    pretrained = weights(uncut, uncut.before(run))
    kept = [key for key in started if key.startswith('backbone.') and 'pos_embed' not in key]
    assert len(kept) > 50
    assert [key for key in kept if not torch.equal(started[key], pretrained[key])] == []
    record = read_record(uncut.folder(run))
    assert record['finished']
    assert (record['train_images'], record['val_images'], record['batch_size']) == (4, 3, 4)
    assert record['parameters'] == sum(
        v.numel() for key, v in weights(uncut, run).items() if 'running' not in key and 'num_batches' not in key
    )


def test_scores_of_finished_runs_are_those_of_their_last_validation(uncut):
    assert score_run(uncut, Run('pretrain', 'DTN', 0)) is None, 'not trained'
    for stage in ('pretrain', 'retinanet'):
        run = Run(stage, 'DTN+DPN', 0)
        run_piece(uncut, run, minutes=10)
        scores = score_run(uncut, run)
        record = read_record(uncut.folder(run))
        last = record['curve'][str(record['epochs'])][uncut.stages[stage].metric]
        assert scores['value'] == pytest.approx(last, abs=5.1e-4)
        assert scores['images'] == record['val_images']
        assert json.loads((uncut.folder(run) / 'scores.json').read_text()) == scores


def test_accuracy_on_corrupted_images(uncut, monkeypatch):
    run = Run('pretrain', 'DTN+DPN', 0)
    run_test, cells = CorruptedTest.run, []

    def known(self, cell):
        cells.append(cell)
        real = run_test(self, cell) if len(cells) == 1 else None
        return {'accuracy/top1': real['accuracy/top1'] if real else 10.0 * CORRUPTIONS.index(cell[0]) + cell[1] ** 2}

    monkeypatch.setattr(CorruptedTest, 'run', known)
    assert add_corrupted(uncut, Run('pretrain', 'DTN', 0), 3) is None, 'not trained'
    add_corrupted(uncut, run, 3)
    entry = read_record(uncut.folder(run))['corrupted']
    assert entry['images'] == 3
    assert entry['clean'] in (0, pytest.approx(100 / 3), pytest.approx(200 / 3), 100)
    assert entry['fog'] == pytest.approx(10 * CORRUPTIONS.index('fog') + 35 / 3, abs=1e-3)  # (1 + 9 + 25) / 3
    assert len(cells) == 1 + 3 * len(CORRUPTIONS)
    assert read_record(uncut.folder(run))['finished']


def test_a_detector_waits_for_its_pretraining(uncut):
    with pytest.raises(
        UserError, match=r'retinanet LN seed 0 needs the weights of pretrain LN seed 0, which is not finished'
    ):
        run_piece(uncut, Run('retinanet', 'LN', 0), minutes=1)


def test_two_processes_do_not_train_in_one_folder(uncut):
    run = Run('pretrain', 'LN', 0)
    uncut.folder(run).mkdir(parents=True)
    with pieces.only_one(uncut.folder(run)), pytest.raises(UserError, match='another process is training in'):
        run_piece(uncut, run, NO_TIME)
    with pieces.only_one(uncut.folder(run)):
        pass


def test_a_run_of_another_config_is_not_continued(uncut):
    run = Run('pretrain', 'DTN+DPN', 0)
    study = make_study(uncut.config.parent, workers=1, name='other')
    study.folder(run).mkdir(parents=True)
    write_record(study.folder(run), new_record(study.run_config(run), run.stage, run.arm, run.seed))
    config = study.stages['pretrain'].config
    text = config.read_text()
    config.write_text(text + 'optim_wrapper = dict(optimizer=dict(lr=0.5))\n')
    plan._read_config.cache_clear()  # as in another process
    try:
        with pytest.raises(UserError, match='holds a run of another config'):
            run_piece(study, run, NO_TIME)
    finally:
        config.write_text(text)
        plan._read_config.cache_clear()
    assert not is_finished(study.folder(run))


def test_arms_of_a_seed_start_alike_and_seeds_do_not(uncut):
    starts = {}
    for arm, seed in (('LN', 0), ('DTN+DPN', 0), ('LN', 1)):
        cfg = uncut.run_config(Run('pretrain', arm, seed))
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
def test_the_whole_grid_by_the_tool(tmp_path):
    study = make_study(tmp_path, seeds=(0, 1))
    arguments = [str(study.config), '--work-dir', str(study.work_dir), '--jobs', '2']
    main = runpy.run_path(str(TOOL))['main']
    main([*arguments, '--pieces', '3'])
    assert 0 < sum(is_finished(study.folder(run)) for run in study.runs()) <= 3
    main([*arguments, '--docs', str(tmp_path / 'docs')])
    assert all(is_finished(study.folder(run)) for run in study.runs())
    text = (tmp_path / 'docs' / 'study.md').read_text()
    assert '16 of 16 training runs are finished' in text
    assert text.count('DTN instead of LN') == 2
    pictures = sorted(path.name for path in (tmp_path / 'docs').glob('*.png'))
    assert pictures == sorted(re.findall(r'\]\((.*?\.png)\)', text))
    assert len(pictures) == 8
    main([*arguments, '--stages', 'pretrain', '--arms', 'LN', '--corrupted', '3'])
    accuracies = read_record(study.folder(Run('pretrain', 'LN', 1)))['corrupted']
    assert accuracies['images'] == 3
    assert set(accuracies) == {'images', 'clean', *CORRUPTIONS}
