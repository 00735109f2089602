"""ListOps: values of expressions, the distribution of the generator, files, and the encoders with each normalizer."""

import random
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import torch
from mmengine import Config
from mmengine.registry import PARAM_SCHEDULERS
from torch import nn

from experiments.listops.dataset import ListOps, read_examples, write_examples
from experiments.listops.grammar import DIGITS, OPERATORS, VOCABULARY, Grammar, evaluate, examples
from tests.helpers.compare import assert_near

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ('text', 'value'),
    [
        ('5', 5),
        ('[MAX 2 9 [MIN 4 7 ] 0 ]', 9),
        ('[MIN 8 [MAX 3 6 ] 7 ]', 6),
        ('[MED 1 9 2 ]', 2),
        ('[MED 1 2 4 9 ]', 3),
        ('[MED 1 2 ]', 1),  # 1.5, rounded down
        ('[SM 9 8 7 ]', 4),
        ('[SM [MAX 1 5 ] [MED 0 3 8 ] [SM 9 9 ] ]', 6),
    ],
)
def test_evaluate(text, value):
    assert evaluate(text.split()) == value


def near(count, total, probability):
    """Within 4 standard deviations of a binomial distribution."""
    return abs(count - total * probability) < 4 * (total * probability * (1 - probability)) ** 0.5


def test_nodes_are_drawn_as_published():
    """Operators with a probability of 0.25, everything else uniform. At depth 2 only digits are left."""
    grammar, random_numbers, total = Grammar(2, 4, 1, 9), random.Random(0), 8000
    drawn = [grammar.draw(random_numbers) for _ in range(total)]
    lengths = Counter(map(len, drawn))
    assert set(lengths) == {1, 4, 5, 6}
    assert near(lengths[1], total, 0.75)
    assert all(near(lengths[2 + args], total, 0.25 / 3) for args in (2, 3, 4))
    operators = Counter(tokens[0] for tokens in drawn if len(tokens) > 1)
    assert all(near(operators[name], total - lengths[1], 1 / 4) for name in OPERATORS)
    digits = Counter(token for tokens in drawn for token in tokens if token in DIGITS)
    assert all(near(digits[digit], digits.total(), 1 / 10) for digit in DIGITS)


def test_examples_repeat_by_seed_and_files_keep_them(tmp_path):
    written, again, other = (list(islice(examples(Grammar(), seed), 3)) for seed in (0, 0, 1))
    assert written == again != other
    assert all(500 < len(tokens) < 2000 and value == evaluate(tokens) for tokens, value in written)
    write_examples(tmp_path / 'basic_val.tsv', written)
    assert read_examples(tmp_path / 'basic_val.tsv') == written
    sample = ListOps(str(tmp_path), 'basic_val.tsv')[2]
    assert [VOCABULARY[i] for i in sample['inputs']] == written[2][0]
    assert sample['labels'] == written[2][1]
    (tmp_path / 'published.tsv').write_text('Source\tTarget\n( ( ( [MAX 2 ) 9 ) ] )\t9\n')
    assert read_examples(tmp_path / 'published.tsv') == [(['[MAX', '2', '9', ']'], 9)]


def classifier(encoder, norm='DTN', **kwargs):
    pytest.importorskip('transformers')
    from experiments.listops.classifier import ListOpsClassifier

    sizes = dict(max_length=720, embed_dims=32, depth=2, num_heads=4, mlp_ratio=2, dropout=0.0) | kwargs
    model = ListOpsClassifier(encoder, dict(type=norm), **sizes)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


@pytest.mark.parametrize(('encoder', 'norm'), [('transformer', 'DTN'), ('bigbird', 'DTN'), ('bigbird', 'IN')])
def test_padding_changes_no_logits(encoder, norm):
    model = classifier(encoder, norm).eval()
    inputs, labels = [torch.randint(2, 17, (n,)) for n in (7, 23, 12)], [torch.tensor(1)] * 3
    with torch.no_grad():
        together = model(inputs, labels)
        alone = torch.cat([model(inputs[i : i + 1], labels[:1]) for i in range(3)])
    assert_near('logits', together, alone)


@pytest.mark.parametrize('encoder', ['transformer', 'bigbird', 'reformer'])
def test_layer_norm_is_the_encoder_of_transformers(encoder):
    """Its own LayerNorms, with the same weights, give the same features, and every parameter gets a gradient."""
    model = classifier(encoder, 'LN').eval()
    inputs, labels = [torch.randint(2, 17, (n,)) for n in (7, 23)], [torch.tensor(1), torch.tensor(4)]
    torch.manual_seed(1)  # Reformer draws its hashes
    replaced = model.features(inputs)
    for name, module in list(model.encoder.named_modules()):
        if type(module).__name__ == 'GridNormAdapter':
            original = nn.LayerNorm(32, eps=1e-6)
            original.load_state_dict(module.norm.state_dict())
            model.encoder.set_submodule(name, original)
    torch.manual_seed(1)
    assert_near('features', replaced, model.features(inputs))
    model.train()(inputs, labels, mode='loss')['loss'].backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_learning_rate_is_long_range_arenas():
    """0.05 * min(step / 1000, 1) / sqrt(max(step, 1000)), by its published code, to 1%."""
    cfg = Config.fromfile(ROOT / 'projects' / 'experiments' / 'listops' / 'configs' / 'listops_1xb32_lra.py')
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=cfg.optim_wrapper.optimizer.lr)
    schedulers = [PARAM_SCHEDULERS.build(one, default_args=dict(optimizer=optimizer)) for one in cfg.param_scheduler]
    for step in range(5000):
        if step % 250 == 125:
            expected = 0.05 * min(step / 1000, 1) / max(step, 1000) ** 0.5
            assert optimizer.param_groups[0]['lr'] == pytest.approx(expected, rel=0.01)
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
