"""Every line of projects/experiments/ablations/README.md builds the classifier that it describes."""

import re
import shlex
from pathlib import Path

import mmpretrain.utils
import pytest
import torch
from mmengine import Config, DefaultScope
from mmengine.config import DictAction
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS

from tests.helpers.cases import slow
from tokennorm.norms import DTN, LayerNorm

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / 'projects' / 'experiments' / 'ablations' / 'README.md').read_text()
DTN_TABLE, PVT_TABLE, DPN_TABLE, TABLE_3 = (
    re.findall(r'^\| ([^|]*) \| `(model[^`]*)` \|', part, re.M)
    for part in re.split(r'Table 10 \(a\) of the|The Dual Pa|## Other norm', PAGE)
)
SMALL_STAR = "model.backbone.arch='small*' model.head.in_channels=432 "


def configured(config, line):
    """The config with the options of a line."""
    options = dict(option.split('=', 1) for option in shlex.split(line))
    cfg = Config.fromfile(ROOT / 'configs' / 'imagenet' / config)
    cfg.merge_from_dict({key: DictAction._parse_iterable(value) for key, value in options.items()})
    return cfg


def build(config, line):
    """The classifier on the meta device."""
    cfg = configured(config, line)
    mmpretrain.utils.register_all_modules(init_default_scope=False)
    with DefaultScope.overwrite_default_scope('mmpretrain'), torch.device('meta'):
        return MODELS.build(cfg.model)


def test_the_tables_are_complete():
    assert (len(DTN_TABLE), len(PVT_TABLE), len(DPN_TABLE)) == (18, 4, 12)
    assert [title for title, _ in TABLE_3] == ['BN', 'IN', 'GN', 'SN', 'ScaleNorm', 'PowerNorm']
    assert SMALL_STAR.strip() in PAGE


def kinds_of(table, *numbers):
    """The lines of a table as cases: these are fast."""
    marks = {True: (), False: pytest.mark.slow}
    return [pytest.param(*row, id=row[0], marks=marks[i in numbers]) for i, row in enumerate(table)]


@pytest.mark.parametrize(('title', 'line'), kinds_of(DTN_TABLE, 5, 9, 12, 13, 15))
def test_a_line_of_the_dtn_paper_builds(title, line):
    backbone = build('vit-small-dtn_8xb128_in1k.py', SMALL_STAR + line).backbone
    norms = [module for module in backbone.modules() if isinstance(module, DTN)]
    blocks = int(re.search(r'l_dtn=(\d+)', line)[1]) if 'l_dtn' in line else 10
    assert len(norms) == (0 if 'type=LN' in line else 2 * blocks)
    assert (backbone.embed_dims, backbone.blocks[0].attn.num_heads, backbone.l_dtn) == (432, 9, blocks)
    learned = {name.split('.')[-1] for name, p in backbone.named_parameters() if p.requires_grad and '.norm1.' in name}
    fixed = re.search(r'fixed_lambda="?([^ "]*)', line)
    if norms:
        both = {'mean_logit', 'var_logit'}
        expected = {'(None,1)': {'mean_logit'}, '(1,None)': {'var_logit'}}.get(fixed[1], set()) if fixed else both
        assert learned & both == expected
        assert ('position' in learned) == (not re.search('uniform|frozen|band', line))


@pytest.mark.parametrize(('title', 'line'), PVT_TABLE, ids=[title for title, _ in PVT_TABLE])
def test_a_line_of_table_10a_for_pvt_builds(title, line):
    backbone = build('pvt-tiny-dtn_8xb128_in1k.py', line).backbone
    norms = [module for module in backbone.modules() if isinstance(module, DTN)]
    assert len(norms) == (0 if 'LayerNorm' in title else 12)  # two blocks of two norms in three stages
    assert all(norm.position.requires_grad == (title == 'DTN') for norm in norms)
    with_eq6 = [name for name, _ in backbone.named_parameters() if name.endswith('attn.position')]
    assert len(with_eq6) == (6 if 'Eq. 6' in title else 0)


@pytest.mark.parametrize(('title', 'line'), kinds_of(DPN_TABLE, 2, 5, 7))
def test_a_line_of_the_dual_patchnorm_notes_builds(title, line):
    model = build('vit-small_8xb128_in1k.py', line)
    block, stem = model.backbone.blocks[0], model.backbone.patch_embed
    norms = (getattr(block, name, None) for name in ('norm1', 'post_norm1', 'norm2', 'post_norm2'))
    kinds = [type(norm).__name__ for norm in norms]
    placement = re.search(r'norm_placement="?([^ "]*)', line)
    pairs = re.findall(r'pre\+post|pre|post', placement[1]) if placement else ['pre']
    pairs = pairs * 2 if len(pairs) == 1 else pairs
    expected = [part in pair.split('+') for pair in pairs for part in ('pre', 'post')]
    assert [kind == 'LayerNorm' for kind in kinds] == expected
    norms = re.search(r'norms=(\w+)', line)[1] if 'norms=' in line else 'dual' if 'DualPatchEmbed' in line else ''
    has = [type(getattr(stem, name, None)).__name__ == 'LayerNorm' for name in ('patch_norm', 'norm')]
    assert has == [norms in ('dual', 'pre'), norms in ('dual', 'post', 'post_pos_embed')]


# Norms of a normalizer of Table 3, those that stay LayerNorm, and blocks before the class token joins.
MODELS_OF_TABLE_3 = {
    'token_norm_cfg': (20, 5, 10),  # vit_norm_s_star
    'attn_norm_cfg': (12, 13, 0),  # vit_s_star
    'norm_cfg': (25, 0, 0),
}


@pytest.mark.parametrize(
    ('title', 'line', 'place'),
    [
        *(slow(*row, 'token_norm_cfg') for row in TABLE_3[:4]),
        *((*row, 'token_norm_cfg') for row in TABLE_3[4:]),
        (*TABLE_3[2], 'attn_norm_cfg'),
        slow(*TABLE_3[2], 'norm_cfg'),
    ],
)
def test_a_normalizer_of_table_3_is_as_in_the_authors_code(title, line, place):
    replaced = line.replace('token_norm_cfg', place)
    if place == 'attn_norm_cfg':
        assert f'`{place}` for `token_norm_cfg`' in PAGE
        replaced += ' model.backbone.type=experiments.ablations.AblatedViT'
    backbone = build('vit-small-star_8xb128_in1k.py', replaced).backbone
    norms = [module for block in backbone.blocks for module in (block.norm1, block.norm2)] + [backbone.norm]
    kind = MODELS.get(f'tokennorm.{title}')
    others = [norm for norm in norms if type(norm) is not kind]
    assert {type(norm) for norm in others} <= {LayerNorm}
    assert (25 - len(others), len(others), backbone.l_dtn) == MODELS_OF_TABLE_3[place]
    settings = dict(GN=dict(num_groups=9), IN=dict(unbiased=True), PowerNorm=dict(num_groups=9, warmup_iters=3000))
    for name, value in settings.get(title, {}).items():
        assert getattr(backbone.blocks[0].norm1, name) == value
    if title == 'ScaleNorm':
        assert backbone.blocks[0].norm1.weight.shape == (432,)


LINES_OF_P = re.findall(r'^\| ([^|]*) \| `(optim_wrapper[^`]*)` \|', PAGE, re.M)


@pytest.mark.parametrize(
    ('config', 'line', 'decay', 'rate'),
    [
        ('pvt-tiny-dtn_8xb128_in1k.py', LINES_OF_P[0][1], 0.05, 1e-3),
        slow('vit-small-star-dtn_8xb128_in1k.py', LINES_OF_P[1][1], 0.05, 1e-4),
        ('vit-small-star-dtn_8xb128-release_in1k.py', '', 0.05, 1e-3),
        ('pvt-tiny-dtn_8xb128-release_in1k.py', '', 0.05, 1e-3),
    ],
)
def test_p_has_the_weight_decay_and_the_rate_of_its_line(config, line, decay, rate):
    model = build(config, line)
    groups = build_optim_wrapper(model, configured(config, line).optim_wrapper).optimizer.param_groups
    of_group = {id(p): (group['weight_decay'], round(group['lr'], 9)) for group in groups for p in group['params']}
    found = {name: of_group[id(p)] for name, p in model.named_parameters()}
    positions = {value for name, value in found.items() if name.endswith('.position')}
    assert positions == {(decay, rate)}
    assert {value for name, value in found.items() if name.endswith('.var_logit')} == {(0.0, 1e-3)}


@pytest.mark.parametrize('name', ['vit-small-star-dtn', 'pvt-tiny-dtn'])
def test_the_recipe_of_the_authors_code(name):
    cfg = configured(f'{name}_8xb128-release_in1k.py', '')
    steps = [step['type'] for step in cfg.train_dataloader.dataset.pipeline]
    assert 'RandAugment' in steps
    assert 'RandomErasing' not in steps
    assert build(f'{name}_8xb128-release_in1k.py', '').data_preprocessor.batch_augments is None
    assert cfg.custom_hooks == [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
    assert (cfg.param_scheduler[-1].end, cfg.train_cfg.max_epochs) == (300, 310)


@pytest.mark.parametrize(
    ('config', 'line'),
    [
        ('vit-small-dtn_8xb128_in1k.py', next(SMALL_STAR + line for _, line in DTN_TABLE if 'eq6' in line)),
        slow('pvt-tiny-dtn_8xb128_in1k.py', next(line for _, line in PVT_TABLE if 'eq6' in line)),
        ('vit-small-dtn_8xb128_in1k.py', 'model.backbone.token_norm_cfg.type=DTN'),
    ],
)
def test_eq6_has_no_weight_decay_in_the_attention_or_in_dtn(config, line):
    model = build(config, line)
    groups = build_optim_wrapper(model, configured(config, line).optim_wrapper).optimizer.param_groups
    decay = {id(p): group['weight_decay'] for group in groups for p in group['params']}
    positions = {name: decay[id(p)] for name, p in model.named_parameters() if name.endswith('.position')}
    assert len(positions) in (6, 10, 20)
    assert set(positions.values()) == {0}
    assert decay[id(model.backbone.blocks[0].mlp.fc1.weight if 'vit' in config else model.head.fc.weight)] == 0.05


def test_instance_norm_in_ten_blocks_is_the_model_of_table_5b():
    line = 'model.backbone.token_norm_cfg.type=IN'
    assert line in PAGE
    backbone = build('vit-small_8xb128_in1k.py', line).backbone
    kinds = [type(norm).__name__ for block in backbone.blocks for norm in (block.norm1, block.norm2)]
    assert kinds == ['InstanceNorm'] * 20 + ['LayerNorm'] * 4
    assert backbone.l_dtn == 10
