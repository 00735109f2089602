"""Checkpoints load whole or not at all."""

import pytest
import torch

from tests.helpers.checkpoints import assert_same_weights, pretrained
from tests.helpers.norms import published_dtn
from tests.helpers.pvt import ARCH, published_layout, small_pvt
from tests.helpers.weights import randomize
from tokennorm.backbones import PVT
from tokennorm.base.messages import UserError
from tokennorm.checkpoints import Checkpoint, CheckpointError, load_pretrained, read_state_dict


def test_what_does_not_fit_is_named(tmp_path):
    source = small_pvt()
    torch.save(source.state_dict(), tmp_path / 'ln.pth')
    with pytest.raises(RuntimeError, match=r'30 missing: .*mean_logit') as error:
        pretrained(tmp_path / 'ln.pth', token_norm_cfg=dict(type='DTN'), token_norm_stages=4)
    assert 'unexpected' not in str(error.value)
    assert "init='layer_norm'" in str(error.value)
    with_dtn = small_pvt(token_norm_cfg=dict(type='DTN'))
    torch.save(with_dtn.state_dict(), tmp_path / 'dtn.pth')
    with pytest.raises(RuntimeError, match=r'unexpected: .*mean_logit') as error:
        pretrained(tmp_path / 'dtn.pth')
    assert "init='layer_norm'" not in str(error.value)
    with pytest.raises(
        RuntimeError, match=r'another shape: stages.0.patch_embed.proj.weight \(\(8, 3, 4, 4\) .* \(8, 1,'
    ):
        pretrained(tmp_path / 'ln.pth', in_channels=1)
    with pytest.raises(CheckpointError, match=r'none.pth not found'):
        pretrained(tmp_path / 'none.pth')
    weights = dict(a=torch.ones(1))
    for content, message in (
        ({'state_dict': [1]}, 'it has state_dict: of a pickled module save its state_dict'),
        (dict(model=torch.nn.Linear(2, 2), epoch=1), 'it has model, epoch: of a pickled module save'),
        (
            dict(student=weights, teacher=weights, epoch=1),
            'it has student, teacher, epoch: save its "student"',
        ),
    ):
        torch.save(content, tmp_path / 'other.pth')
        with pytest.raises(CheckpointError, match=f'other.pth holds no state dict, .*{message}'):
            read_state_dict(tmp_path / 'other.pth')


@pytest.mark.parametrize(('read', 'average'), [('model', 'model_ema'), ('state_dict', 'ema_state_dict')])
def test_a_second_state_dict_in_the_file_is_named(read, average, tmp_path):
    source = small_pvt()
    weights, others = source.state_dict(), {key: value + 1 for key, value in source.state_dict().items()}
    torch.save({average: others, read: weights, 'optimizer': dict(state=dict())}, tmp_path / 'two.pth')
    model = pretrained(tmp_path / 'two.pth')
    assert_same_weights(model, source)
    expected = f'read from "{read}"{", the moving average" * (read == "state_dict")}; the file also has "{average}"'
    assert expected in str(load_pretrained(model, tmp_path / 'two.pth'))
    assert expected in str(Checkpoint.read(tmp_path / 'two.pth'))


@pytest.mark.parametrize(
    'init_cfg',
    [
        [dict(type='Pretrained', checkpoint='pvt.pth')],
        'pvt.pth',
        dict(type='Pretrained'),
        dict(type='Pretrained', checkpoint='pvt.pth', prefix='neck.'),
        dict(type='Kaiming', layer='Conv2d'),
    ],
)
def test_other_forms_of_init_cfg_are_refused_not_half_loaded(init_cfg):
    with pytest.raises(UserError, match=r'init_cfg=.* must be dict'):
        PVT(ARCH, init_cfg=init_cfg).init_weights()


def test_the_prefix_of_mmengines_init_cfg_is_that_of_the_backbone(tmp_path):
    source = randomize(small_pvt())
    torch.save({f'backbone.{key}': value for key, value in source.state_dict().items()}, tmp_path / 'detector.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'detector.pth'))
    model = PVT(ARCH, init_cfg=dict(init_cfg, prefix='backbone.', map_location='cpu'))
    model.init_weights()
    assert_same_weights(model, source)
    with pytest.raises(UserError, match='is found without prefix'):
        PVT(ARCH, init_cfg=dict(init_cfg, prefix='neck')).init_weights()


def test_what_may_keep_its_start_is_named_in_init_cfg(tmp_path):
    """Missing parameters and those of another shape; all others must be filled."""
    source = randomize(small_pvt())
    torch.save(source.state_dict(), tmp_path / 'ln.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'ln.pth'))
    kwargs = dict(token_norm_cfg=dict(type='DTN'), in_channels=4)
    new = ['*.mean_logit', '*.var_logit', '*.norm?.position', 'stages.0.patch_embed.proj.weight']
    model = PVT(ARCH, init_cfg=dict(init_cfg, allow_missing=new), **kwargs)
    start = {key: value.clone() for key, value in model.state_dict().items()}
    model.init_weights()
    kept = {key for key, value in start.items() if key not in source.state_dict() or value.shape[1:2] == (4,)}
    assert len(kept) == 1 + 3 * 2 * sum(ARCH['depths'][:3])
    for key, value in model.state_dict().items():
        assert torch.equal(value, start[key] if key in kept else source.state_dict()[key]), key
    report = load_pretrained(model, tmp_path / 'ln.pth', allow_missing=new)
    assert set(report.missing) == kept
    assert report.unexpected == ['stages.0.patch_embed.proj.weight']
    with pytest.raises(RuntimeError, match=r'(?s)8 missing: stages.0.blocks.0.norm1.position'):
        PVT(ARCH, init_cfg=dict(init_cfg, allow_missing=[*new[:2], *new[3:]]), **kwargs).init_weights()
    with pytest.raises(UserError, match=r"allow_missing: 'stages.9.\*' matches no parameter"):
        PVT(ARCH, init_cfg=dict(init_cfg, allow_missing='stages.9.*')).init_weights()
    torch.save(source.state_dict() | {'extra': torch.ones(1)}, tmp_path / 'ln.pth')
    with pytest.raises(RuntimeError, match='1 unexpected: extra'):
        PVT(ARCH, init_cfg=dict(init_cfg, allow_missing='*')).init_weights()


def test_published_pvt_with_published_dtn_fills_the_backbone(tmp_path):
    kwargs = dict(token_norm_cfg=dict(type='DTN', form='published'))
    source = randomize(small_pvt(**kwargs))
    torch.save(published_dtn(published_layout(source)), tmp_path / 'dtn.pth')
    assert_same_weights(pretrained(tmp_path / 'dtn.pth', **kwargs), source)
