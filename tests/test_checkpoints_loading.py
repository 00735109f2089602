"""Checkpoints load whole or not at all, and run no code."""

import pickle
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer

from tests.test_backbones_pvt import ARCH, published_layout, randomise, small_pvt
from tokennorm.backbones import PVT
from tokennorm.checkpoints import from_published_pvt, load_pretrained, read_state_dict


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


def test_what_is_left_out_of_a_classifier_is_reported(tmp_path):
    torch.save(published_layout(small_pvt()), tmp_path / 'pvt.pth')
    changed = load_pretrained(small_pvt(), tmp_path / 'pvt.pth', from_published_pvt)
    assert set(changed) == {'pos_embed4', 'cls_token', 'norm.weight', 'norm.bias', 'head.weight', 'head.bias'}


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
    for content in ([torch.ones(1)], {'state_dict': [1]}, {'epoch': 3}):
        torch.save(content, tmp_path / 'other.pth')
        with pytest.raises(RuntimeError, match='holds no state dict'):
            read_state_dict(tmp_path / 'other.pth')


@pytest.mark.parametrize(
    'init_cfg',
    [
        [dict(type='Pretrained', checkpoint='pvt.pth')],
        dict(type='Pretrained'),
        dict(type='Pretrained', checkpoint='pvt.pth', prefix='backbone.'),
        dict(type='Kaiming', layer='Conv2d'),
    ],
)
def test_other_forms_of_init_cfg_are_refused_not_half_loaded(init_cfg):
    with pytest.raises(ValueError, match=r'init_cfg=.* must be dict'):
        PVT(ARCH, init_cfg=init_cfg).init_weights()


class Planted:
    def __reduce__(self):
        return (np.save, (planted_path, np.zeros(1)))


class PlantedArray:
    """What runner checkpoints hold, with values that would make numpy follow an address in the file."""

    def __reduce__(self):
        return (np.ndarray, ((1,), PlantedDtype(), b'AAAAAAAA'))


class PlantedDtype:
    def __reduce__(self):
        return (np.dtype, ('O', False, True))


def test_a_checkpoint_with_code_is_refused_and_nothing_runs(tmp_path):
    global planted_path
    planted_path = str(tmp_path / 'ran.npy')
    torch.save({'state_dict': {}, 'planted': Planted()}, tmp_path / 'planted.pth')
    with pytest.raises(RuntimeError, match='cannot be read as tensors alone'):
        read_state_dict(tmp_path / 'planted.pth')
    assert not (tmp_path / 'ran.npy').exists()
    torch.save({'state_dict': {}, 'planted': PlantedArray()}, tmp_path / 'array.pth')
    assert read_state_dict(tmp_path / 'array.pth') == {}
    methods = dict(HistoryBuffer._statistics_methods)
    poisoned = HistoryBuffer()
    poisoned._statistics_methods = {'mean': np.ndarray}
    torch.save({'state_dict': {}, 'planted': poisoned}, tmp_path / 'history.pth')
    HistoryBuffer._statistics_methods.clear()
    HistoryBuffer._statistics_methods.update(methods)
    assert read_state_dict(tmp_path / 'history.pth') == {}
    assert HistoryBuffer._statistics_methods == methods
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


def test_an_address_is_read_as_safely_as_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f'http://127.0.0.1:{server.server_port}'
        source = randomise(small_pvt())
        torch.save({'state_dict': published_layout(source)}, tmp_path / 'pvt.pth')
        assert_same_weights(pretrained(f'{address}/pvt.pth'), source)
        global planted_path
        planted_path = str(tmp_path / 'ran.npy')
        torch.save({'state_dict': {}, 'planted': Planted()}, tmp_path / 'planted.pth')
        with pytest.raises(RuntimeError, match='cannot be read as tensors alone'):
            read_state_dict(f'{address}/planted.pth')
        assert not (tmp_path / 'ran.npy').exists()
        with pytest.raises(OSError, match=r'none.pth could not be fetched'):
            read_state_dict(f'{address}/none.pth')
        server.shutdown()


def test_a_distributed_wrapper_prefix_is_taken_off(tmp_path):
    source = randomise(small_pvt())
    torch.save({f'module.backbone.{k}': v for k, v in source.state_dict().items()}, tmp_path / 'ddp.pth')
    assert_same_weights(pretrained(tmp_path / 'ddp.pth'), source)


def test_published_pvt_with_published_dtn_fills_the_backbone(tmp_path):
    kwargs = dict(token_norm_cfg=dict(type='DTN', form='published'))
    source = randomise(small_pvt(**kwargs))
    published = {}
    for key, value in published_layout(source).items():
        if key.endswith('.position'):
            square, dx, dy = value.unbind(-1)
            published[key.replace('position', 'pos_proj.weight')] = torch.stack([-dx, -dy, square], dim=-1)
            published[key.replace('position', 'pos_proj.bias')] = torch.randn(len(value))
        else:
            published[key.replace('mean_logit', 'mean_norm_weight').replace('var_logit', 'var_norm_weight')] = value
    torch.save(published, tmp_path / 'dtn.pth')
    assert_same_weights(pretrained(tmp_path / 'dtn.pth', **kwargs), source)


def test_from_published_pvt_is_pure_and_names_foreign_keys():
    published = published_layout(small_pvt())
    before = {key: value.clone() for key, value in published.items()}
    converted = from_published_pvt(published)
    assert set(converted) == set(small_pvt().state_dict())
    assert torch.equal(converted['stages.3.pos_embed'], published['pos_embed4'][:, 1:])
    assert list(published) == list(before)
    assert all(torch.equal(published[key], value) for key, value in before.items())
    grids = {
        'pos_embed1': torch.ones(1, 2, 8),
        'pos_embed2': torch.ones(1, 50, 8),
    }  # 1 x 2 is a grid, 50 a 7 x 7 and a row
    assert [v.shape[1] for v in from_published_pvt(grids).values()] == [2, 49]
    with pytest.raises(ValueError, match='layer1'):
        from_published_pvt({'layer1.weight': torch.ones(1)})
