"""DTN in the CvT of transformers, where that is installed (requirements/listops.txt)."""

from pathlib import Path

import pytest
import torch

from tokennorm import replace_norms
from tokennorm.norms import DTN

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / 'projects' / 'experiments' / 'ablations' / 'README.md').read_text()
transformers = pytest.importorskip('transformers')


def cvt():
    return transformers.CvtForImageClassification(transformers.CvtConfig(num_labels=1000))


def test_each_block_has_two_norms_with_the_heads_of_its_stage():
    plain, model = cvt(), cvt()
    assert len(replace_norms(model, dict(type='DTN'))) == 26
    heads = [module.num_heads for module in model.modules() if isinstance(module, DTN)]
    assert heads == [1] * 2 + [3] * 4 + [6] * 20
    counts = [sum(p.numel() for p in of.parameters()) for of in (plain, model)]
    assert counts[1] - counts[0] == 5 * sum(heads)
    assert f'| CvT-13 | 26 | {counts[0] / 1e6:.3f} / {counts[1] / 1e6:.3f} |' in PAGE


def test_a_network_with_layer_norm_keeps_its_outputs_and_trains():
    plain, model = cvt().eval(), cvt().eval()
    model.load_state_dict(plain.state_dict())
    replace_norms(model, dict(type='DTN', init='layer_norm'))
    image = torch.randn(2, 3, 96, 128)
    with torch.no_grad():
        expected = plain(image).logits
    assert (model(image).logits - expected).abs().max() < 1e-2 * expected.abs().max()
    model.train()(image, labels=torch.tensor([3, 999])).loss.backward()
    learned = [p for name, p in model.named_parameters() if name.endswith(('mean_logit', 'var_logit', 'position'))]
    assert len(learned) == 78
    assert all(p.grad.isfinite().all() for p in learned)
    assert all(p.grad.abs().sum() > 0 for p in learned[:-3])  # of the last norm only the class token is read
