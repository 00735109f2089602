"""Other architectures of projects/experiments/ablations/README.md: options build, counts are right, each trains."""

import re
import runpy
from pathlib import Path

import pytest
import torch
from mmengine import DefaultScope
from mmengine.optim import build_optim_wrapper
from mmpretrain.structures import DataSample

from tests.helpers.cases import fast_first
from tokennorm.backbones import ReplacedNorms

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / 'projects' / 'experiments' / 'ablations' / 'README.md').read_text()
LINES = {
    name: (config, line.strip('`'))
    for name, config, line in re.findall(r'^\| (\S+) \| `([\w-]+_in1k)` \| (`.*`)? ?\|$', PAGE, re.M)
}
# CvT has a test of its own: tests/replace/test_cvt.py.
COUNTS = re.findall(r'^\| (?!CvT)(\S+) \| (\d+) \| ([\d.]+) / ([\d.]+) \| ([\d.]+) / ([\d.]+) \|', PAGE, re.M)


@pytest.fixture(scope='module')
def tool():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / 'benchmarks'))
        return runpy.run_path(str(ROOT / 'benchmarks' / 'other_architectures.py'))


def test_the_page_has_the_options_of_the_script(tool):
    assert tool['ARCHITECTURES'] == LINES
    assert [name for name, *_ in COUNTS] == list(LINES)


@pytest.mark.slow
@pytest.mark.parametrize('name', [name for name, *_ in COUNTS])
def test_counts_are_those_of_the_model(tool, name):
    (row,) = ([*map(float, row[1:])] for row in COUNTS if row[0] == name)
    plain, dtn = tool['counts'](name, dtn=False), tool['counts'](name, dtn=True)
    assert (0, row[0]) == (plain[0], dtn[0])
    for i, unit in ((1, 1e6), (2, 1e9)):
        assert [round(of[i] / unit, 3) for of in (plain, dtn)] == row[2 * i - 1 : 2 * i + 1]


@pytest.mark.parametrize('name', ['levit_128s', 'deit_tiny_patch16_224'])
def test_mmengine_keeps_the_weights_of_timm(name):
    """Both have an `init_weights` that resets them, pretrained ones too. In LeViT it also undoes zeros in norms."""
    include, num_heads = dict(levit_128s=('stages.*.bn', 4)).get(name, ('blocks.*.norm1', 3))
    model = ReplacedNorms(
        dict(type='timm.create_model', model_name=name), dict(type='DTN'), dict(include=include, num_heads=num_heads)
    )
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.init_weights()
    assert [key for key, value in model.state_dict().items() if not torch.equal(value, before[key])] == []


@pytest.mark.parametrize('name', fast_first([name for name, *_ in COUNTS], 'LeViT-128S'))
def test_a_training_step(tool, name):
    cfg = tool['read_config'](name, dtn=True)
    model = tool['build'](cfg)
    model.init_weights()
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    gradients = {}
    for key, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, key=key: gradients.update({key: p.grad.isfinite().all()}))
    data = dict(
        inputs=torch.randint(0, 256, (2, 3, 224, 224)), data_samples=[DataSample().set_gt_label(i) for i in (3, 999)]
    )
    losses = model.train().train_step(data, optim_wrapper)
    assert 4 < losses['loss'] < 12  # ln 1000 is 6.9
    learned = [key for key, _ in model.named_parameters() if key.endswith(('mean_logit', 'var_logit', 'position'))]
    assert learned
    assert [key for key in learned if not gradients.get(key, False)] == []
