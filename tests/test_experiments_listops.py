"""ListOps: values of expressions, the distribution of the generator, files, and the encoders with each normalizer."""

import random
from collections import Counter
from functools import cache, partial
from itertools import islice
from pathlib import Path

import pytest
import torch
from mmengine import Config
from mmengine.registry import MODELS, PARAM_SCHEDULERS
from torch import nn

import tokennorm
from experiments.listops.dataset import ListOps, read_examples, write_examples
from experiments.listops.grammar import DIGITS, OPERATORS, VOCABULARY, Grammar, evaluate, examples
from tests.helpers.compare import assert_near

ROOT = Path(__file__).resolve().parents[1]


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
    grammar, random_numbers, total = (
        Grammar(max_depth=2, max_args=4, min_length=1, max_length=9),
        random.Random(0),
        8000,
    )
    drawn = [grammar.draw(random_numbers) for _ in range(total)]
    lengths = Counter(map(len, drawn))
    assert set(lengths) == {1, 4, 5, 6}
    assert near(lengths[1], total, 0.75)
    assert all(near(lengths[2 + args], total, 0.25 / 3) for args in (2, 3, 4))
    operators = Counter(tokens[0] for tokens in drawn if len(tokens) > 1)
    assert all(near(operators[name], total - lengths[1], 1 / 4) for name in OPERATORS)
    digits = Counter(token for tokens in drawn for token in tokens if token in DIGITS)
    assert all(near(digits[digit], digits.total(), 1 / 10) for digit in DIGITS)


def depths(tokens):
    """Depth of each digit; the whole expression has depth 1."""
    depth = 1
    for token in tokens:
        if token in DIGITS:
            yield depth
        depth += (token in OPERATORS) - (token == ']')


def test_defaults_are_long_range_arenas_and_seeds_repeat():
    first, again, other = (list(islice(examples(Grammar(), seed), 3)) for seed in (0, 0, 1))
    assert first == again
    assert first[0] != other[0]
    for tokens, value in first + other:
        assert 500 < len(tokens) < 2000
        assert max(depths(tokens)) <= 10
        assert value == evaluate(tokens)


def test_examples_are_different():
    """There are 4 x 10 x 10 expressions of one operator on two digits."""
    tiny = Grammar(max_depth=2, max_args=2, min_length=4, max_length=4)
    drawn = examples(tiny, 0)
    assert len({' '.join(tokens) for tokens, _ in islice(drawn, 400)}) == 400
    with pytest.raises(ValueError, match='no more than about 400 expressions'):
        next(drawn)


def test_files_keep_expressions_and_values(tmp_path):
    written = list(islice(examples(Grammar(3, 3, 5, 20), 0), 4))
    write_examples(tmp_path / 'basic_val.tsv', written)
    assert read_examples(tmp_path / 'basic_val.tsv') == written
    sample = ListOps(str(tmp_path), 'basic_val.tsv')[2]
    assert [VOCABULARY[i] for i in sample['inputs']] == written[2][0]
    assert sample['labels'] == written[2][1]


def test_reads_the_parentheses_of_long_range_arena(tmp_path):
    (tmp_path / 'basic.tsv').write_text('Source\tTarget\n( ( ( [MAX 2 ) 9 ) ] )\t9\n')
    assert read_examples(tmp_path / 'basic.tsv') == [(['[MAX', '2', '9', ']'], 9)]


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('Source\tTarget\n', 'at least one example'),
        ('Source\tTarget\n[MAX 1 2 ]\t2\n[AVG 1 2 ]\t1\n', 'line 3'),
        ('Source\tTarget\n[MAX 1 2 ]\t12\n', 'line 2'),
    ],
)
def test_bad_files(tmp_path, text, message):
    (tmp_path / 'x.tsv').write_text(text)
    with pytest.raises(ValueError, match=message):
        read_examples(tmp_path / 'x.tsv')
    with pytest.raises(FileNotFoundError, match=r'listops/make_data\.py'):
        read_examples(tmp_path / 'absent.tsv')


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


@pytest.mark.parametrize('encoder', ['transformer', 'bigbird', 'reformer'])
def test_sinusoidal_positions_are_long_range_arenas(encoder):
    """sin(t / 10000^(2 i / C)) and cos in turn at token t, fixed; token embeddings of variance 1."""
    pytest.importorskip('transformers')
    from experiments.listops.encoders import build_encoder

    torch.manual_seed(0)
    model, _ = build_encoder(encoder, dict(type='LN'), 1000, 50, 8, 1, 2, 2, dropout=0.0, positions='sinusoidal')
    seen = []
    embed = model.embeddings.position_embeddings
    embed.register_forward_hook(lambda module, args, out: seen.append(out))
    model.eval().embeddings(input_ids=torch.randint(2, 1000, (1, 50)))
    frequency = torch.tensor([1.0, 10000**-0.25, 10000**-0.5, 10000**-0.75])
    expected = torch.arange(50)[:, None] * frequency
    found = seen[0].reshape(-1, 8)
    assert_near('sines', found[:, 0::2], expected.sin())
    assert_near('cosines', found[:, 1::2], expected.cos())
    assert not any(p.requires_grad for p in embed.parameters())
    assert model.embeddings.word_embeddings.weight.std().item() == pytest.approx(1, abs=0.05)


def test_reformer_hashes_in_every_block_as_long_range_arenas():
    model = classifier('reformer', depth=3)
    cfg = model.encoder.config
    assert cfg.attn_layers == ['lsh'] * 3
    assert (cfg.num_hashes, cfg.num_buckets, cfg.lsh_attn_chunk_length) == (1, 10, 73)
    assert model.padded_length == 730  # 720 tokens and the class token, in ten chunks


@cache
def lra_config():
    return Config.fromfile(ROOT / 'projects' / 'experiments' / 'listops' / 'configs' / 'listops_1xb32_lra.py')


def test_learning_rate_is_long_range_arenas():
    """0.05 * min(step / 1000, 1) / sqrt(max(step, 1000)), by its published code, to 1%."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lra_config().optim_wrapper.optimizer.lr)
    schedulers = [
        PARAM_SCHEDULERS.build(cfg, default_args=dict(optimizer=optimizer)) for cfg in lra_config().param_scheduler
    ]
    for step in range(5000):
        if step % 250 == 125:
            expected = 0.05 * min(step / 1000, 1) / max(step, 1000) ** 0.5
            assert optimizer.param_groups[0]['lr'] == pytest.approx(expected, rel=0.01)
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()


def test_config_of_the_paper():
    pytest.importorskip('transformers')
    cfg = lra_config().model.to_dict()
    with torch.device('meta'):
        model = MODELS.build(cfg | dict(token_norm_cfg=dict(type='DTN')))
    blocks = model.encoder.encoder.layer
    assert len(blocks) == 6
    assert type(blocks[5].intermediate.LayerNorm.norm).__name__ == 'DTN'
    assert blocks[0].attention.self.query.weight.shape == (512, 512)
    assert blocks[0].attention.self.num_attention_heads == 8


@pytest.mark.slow
def test_trains_with_the_reduced_config(tmp_path):
    """Two steps, a validation, and two more after a resumption."""
    pytest.importorskip('transformers')
    for split, number in (('train', 40), ('val', 8), ('test', 8)):
        write_examples(tmp_path / f'basic_{split}.tsv', islice(examples(Grammar(4, 10, 20, 60), 0), number))
    options = {f'{split}_dataloader.dataset.data_root': str(tmp_path) for split in ('train', 'val', 'test')}
    options |= {'train_cfg.max_iters': 2, 'train_cfg.val_interval': 2, 'default_hooks.checkpoint.interval': 2}
    options |= {'train_dataloader.batch_size': 4, 'model.token_norm_cfg.type': 'DTN'}
    train = partial(tokennorm.train, 'listops/listops_1xb32_reduced', work_dir=tmp_path / 'run')
    assert set(train(cfg_options=options).metrics) >= {'accuracy/top1'}
    resumed = train(cfg_options=options | {'train_cfg.max_iters': 4}, resume=True)
    assert (tmp_path / 'run' / 'iter_4.pth').is_file()
    assert 0 <= resumed.metrics['accuracy/top1'] <= 100
