"""Checkpoints load whole or not at all, and run no code."""

import pickle

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer

from tests.test_backbones_pvt import ARCH, published_layout, randomise, small_pvt
from tokennorm.backbones import PVT
from tokennorm.checkpoints import from_published_pvt
from tokennorm.checkpoints.loading import read_state_dict


def pretrained(path, **kwargs):
    model = PVT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=str(path)), **kwargs)
    model.init_weights()
    return model


def assert_same_weights(actual, expected):
    for key, value in expected.state_dict().items():
        assert torch.equal(actual.state_dict()[key], value), key


@pytest.mark.parametrize('wrapper', [None, 'state_dict', 'model'])
def test_a_published_checkpoint_fills_the_backbone(tmp_path, wrapper):
    source = randomise(small_pvt())
    content = published_layout(source)
    torch.save({wrapper: content} if wrapper else content, tmp_path / 'pvt.pth')
    assert_same_weights(pretrained(tmp_path / 'pvt.pth'), source)


def test_a_runner_checkpoint_of_a_detector_fills_the_backbone(tmp_path):
    source = randomise(small_pvt(token_norm_cfg=dict(type='DTN')))
    state_dict = {f'backbone.{k}': v for k, v in source.state_dict().items()} | {'neck.conv.weight': torch.ones(1)}
    history = HistoryBuffer([1.0, 2.0], [1, 1])
    content = dict(
        state_dict=state_dict,
        meta=dict(epoch=1, loss=np.float64(1)),
        message_hub=dict(log_scalars={'train/loss': history}),
    )
    torch.save(content, tmp_path / 'epoch_1.pth')
    assert_same_weights(pretrained(tmp_path / 'epoch_1.pth', token_norm_cfg=dict(type='DTN')), source)


def test_what_does_not_fit_is_named(tmp_path):
    source = small_pvt()
    torch.save(source.state_dict(), tmp_path / 'ln.pth')
    with pytest.raises(RuntimeError, match=r'30 missing: .*mean_logit') as error:
        pretrained(tmp_path / 'ln.pth', token_norm_cfg=dict(type='DTN'), token_norm_stages=4)
    assert 'unexpected' not in str(error.value)
    torch.save(source.state_dict() | {'extra': torch.ones(1)}, tmp_path / 'extra.pth')
    with pytest.raises(RuntimeError, match='1 unexpected: extra'):
        pretrained(tmp_path / 'extra.pth')
    with pytest.raises(RuntimeError, match=r'another shape: stages.0.pos_embed \(\(1, 3136, 8\) .* \(1, 256, 8\)'):
        pretrained(tmp_path / 'ln.pth', pretrain_img_size=64)
    with pytest.raises(FileNotFoundError, match=r'none.pth is not there'):
        pretrained(tmp_path / 'none.pth')


class Planted:
    def __reduce__(self):
        return (np.save, (planted_path, np.zeros(1)))


class PlantedAttribute:
    def __reduce__(self):
        return (getattr, (HistoryBuffer, '__init__'))


def test_a_checkpoint_with_code_is_refused_and_nothing_runs(tmp_path):
    global planted_path
    planted_path = str(tmp_path / 'ran.npy')
    torch.save({'state_dict': {}, 'planted': Planted()}, tmp_path / 'planted.pth')
    with pytest.raises(RuntimeError, match='cannot be read as tensors alone'):
        read_state_dict(tmp_path / 'planted.pth')
    assert not (tmp_path / 'ran.npy').exists()
    torch.save({'state_dict': {}, 'planted': PlantedAttribute()}, tmp_path / 'attribute.pth')
    with pytest.raises(RuntimeError, match='asks for the attribute __init__'):
        read_state_dict(tmp_path / 'attribute.pth')
    pickle.dump(Planted(), (tmp_path / 'bare.pth').open('wb'))
    with pytest.raises(RuntimeError, match='cannot be read as tensors alone'):
        read_state_dict(tmp_path / 'bare.pth')
    assert not (tmp_path / 'ran.npy').exists()


def test_a_truncated_file_is_an_error_that_names_it(tmp_path):
    torch.save(small_pvt().state_dict(), tmp_path / 'whole.pth')
    (tmp_path / 'half.pth').write_bytes((tmp_path / 'whole.pth').read_bytes()[:1000])
    (tmp_path / 'empty.pth').write_bytes(b'')
    for name in ('half.pth', 'empty.pth'):
        with pytest.raises(RuntimeError, match=name):
            read_state_dict(tmp_path / name)


def test_from_published_pvt_is_pure_and_names_foreign_keys():
    published = published_layout(small_pvt())
    before = {key: value.clone() for key, value in published.items()}
    converted = from_published_pvt(published)
    assert set(converted) == set(small_pvt().state_dict())
    assert torch.equal(converted['stages.3.pos_embed'], published['pos_embed4'][:, 1:])
    assert list(published) == list(before)
    assert all(torch.equal(published[key], value) for key, value in before.items())
    with pytest.raises(ValueError, match='layer1'):
        from_published_pvt({'layer1.weight': torch.ones(1)})
