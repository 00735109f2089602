"""A study's config: the arms of a stage differ in two fields, and errors in the config are named."""

from pathlib import Path

import pytest
import torch

from experiments.study.patch_statistics import PatchEmbedWithStatistics
from experiments.study.plan import Run, load_study
from experiments.study.run import chosen_runs, parse_args
from tests.helpers.configs import flatten

CONFIGS = Path(__file__).resolve().parents[3] / 'projects' / 'experiments' / 'study' / 'configs'
STUDIES = {name: load_study(CONFIGS / f'{name}.py') for name in ('cpu', 'real')}
STAGES = [(name, stage) for name, study in STUDIES.items() for stage in study.stages]


@pytest.mark.parametrize(('name', 'stage'), STAGES)
def test_arms_differ_in_their_own_fields_and_the_folder_only(name, stage):
    study = STUDIES[name]
    for arm in study.stages[stage].arms:
        of_arm, of_ln = (flatten(study.run_config(Run(stage, which, 1)).to_dict()) for which in (arm, 'LN'))
        different = {key for key in of_arm | of_ln if of_arm.get(key) != of_ln.get(key)}
        different -= {'work_dir', 'model.backbone.init_cfg.checkpoint'}
        fields = {key if '.' in key else f'model.backbone.{key}' for key in study.arms[arm]}
        assert all(key.startswith(tuple(fields)) for key in different), arm
        assert different or arm == 'LN'


def test_arms_set_norm_stem_and_lambda_learning_rate():
    study = STUDIES['real']
    cfg = study.run_config(Run('bccd', 'DTN from LN, lambda 50x', 1))
    assert cfg.model.backbone.token_norm_cfg == dict(type='DTN', init='layer_norm')
    keys = cfg.optim_wrapper.paramwise_cfg.custom_keys
    assert keys.mean_logit.lr_mult == keys.var_logit.lr_mult == 50.0
    assert keys.mean_logit.decay_mult == 0.0
    cfg = study.run_config(Run('vit_p16_placement', 'LN post, pre+post', 0))
    assert cfg.model.backbone.norm_placement == ('post', 'pre+post')
    assert cfg.model.backbone.token_norm_cfg == dict(type='LN', eps=1e-6)
    assert study.run_config(Run('vit_p16_blocks', 'l_dtn 2', 0)).model.backbone.l_dtn == 2


def test_detector_runs_use_their_own_pretraining():
    study = STUDIES['cpu']
    runs = list(study.runs())
    assert len(set(runs)) == len(runs) == 2 * 4 * 3
    run = Run('retinanet', 'DTN+DPN', 2)
    assert study.before(run) == Run('pretrain', 'DTN+DPN', 2)
    assert runs.index(study.before(run)) < runs.index(run)
    cfg = study.run_config(run)
    assert cfg.model.backbone.init_cfg.checkpoint == 'work_dirs/study-cpu/pretrain/dtn-dpn/seed2/weights.pth'
    assert cfg.randomness == dict(seed=2)
    assert study.run_config(Run('pretrain', 'LN', 0)).model.backbone.init_cfg is None


@pytest.mark.parametrize(('part', 'trained'), [('mean', [True] * 3 + [False]), ('deviation', [False] * 3 + [True])])
def test_a_stem_with_one_part_of_the_statistics_sees_and_learns_that_part_alone(part, trained):
    stem = PatchEmbedWithStatistics(embed_dims=8, patch_size=4, part=part)
    assert (stem.statistics.weight != 0).all(0).tolist() == trained
    (stem(torch.randn(2, 3, 8, 8)) * torch.randn(8)).sum().backward()
    gradient = stem.statistics.parametrizations.weight.original.grad
    assert (gradient.abs().sum(0) > 0).tolist() == trained


def test_runs_are_chosen_by_stage_arm_and_seed():
    study = load_study(CONFIGS / 'longer.py')
    options = ['--stages', 'pvt_mini', '--arms', 'local', 'LN', '--seeds', '21']
    chosen = chosen_runs(study, parse_args([str(study.config), *options]))
    assert chosen == [Run('pvt_mini', 'LN', 21), Run('pvt_mini', 'local', 21)]
    everything = chosen_runs(study, parse_args([str(study.config)]))
    assert len(everything) == 3 * 3 + 3 * (5 + 4 + 4) + 2  # rates; classifiers and detectors of three seeds; local 1x
    with pytest.raises(ValueError, match=r'--seeds 7: expected some of \[20, 21, 22, 100\]'):
        chosen_runs(study, parse_args([str(study.config), '--seeds', '7']))
