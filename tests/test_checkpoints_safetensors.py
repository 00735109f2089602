"""Checkpoints as .safetensors: equal to .pth bit for bit, and damaged files are named."""

import json
import struct

import pytest
import torch
from mmengine.runner import checkpoint as loaders
from mmengine.runner.checkpoint import CheckpointLoader

from tests.helpers.checkpoints import assert_same_weights, pretrained
from tests.helpers.http import serve
from tests.helpers.pvt import small_pvt
from tests.helpers.weights import randomize
from tokennorm.checkpoints import CheckpointError, read_checkpoint, read_state_dict, trained_classes
from tokennorm.checkpoints.in_mmengine import keep_mmengine_from_unpickling
from tokennorm.checkpoints.writing import to_bytes

META = dict(dataset_meta=dict(classes=('cat', 'dög'), palette=[(1, 2, 3)]), cfg='model = 1\n', epoch=3, seed=None)


def weights():
    """Every dtype that a checkpoint may have, a scalar, an empty tensor, and two views of one storage."""
    shared = torch.randn(4, 3)
    dtypes = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
    return {
        'transposed': shared.T,
        'shared': shared[1:],
        'scalar': torch.tensor(7),
        'empty': torch.zeros(0, 2),
        'special': torch.tensor([float('nan'), -0.0, float('inf'), 1e-45]),
        **{str(dtype): torch.randn(5).mul(9).to(dtype) for dtype in dtypes},
    }


def test_it_gives_back_every_bit_with_classes_and_config(tmp_path):
    expected = weights()
    written = to_bytes(dict(state_dict=expected, meta=META), '.safetensors')
    assert written == to_bytes(dict(state_dict=expected, meta=META), '.safetensors')
    path = tmp_path / 'mini.safetensors'
    path.write_bytes(written)
    content = read_checkpoint(path)
    assert set(content['state_dict']) == set(expected)
    for key, value in expected.items():
        actual = content['state_dict'][key]
        assert actual.dtype == value.dtype, key
        assert torch.equal(actual.reshape(-1).view(torch.uint8), value.contiguous().reshape(-1).view(torch.uint8)), key
    assert content['meta'] == META
    assert trained_classes(path) == ['cat', 'dög']
    (length,) = struct.unpack('<Q', written[:8])
    metadata = json.loads(written[8 : 8 + length])['__metadata__']
    assert metadata['format'] == 'pt'
    assert json.loads(metadata['meta'])['cfg'] == 'model = 1\n'
    assert length % 8 == 0


def test_a_file_of_another_program_is_read_without_its_metadata(tmp_path):
    from safetensors.torch import save_file

    save_file({'weight': torch.ones(2)}, tmp_path / 'a.safetensors', {'classes': 'not JSON', 'meta': '[1]'})
    assert read_checkpoint(tmp_path / 'a.safetensors')['meta'] == {}
    assert torch.equal(read_state_dict(tmp_path / 'a.safetensors')['weight'], torch.ones(2))
    save_file({'weight': torch.ones(2)}, tmp_path / 'b.safetensors')
    assert read_checkpoint(tmp_path / 'b.safetensors')['meta'] == {}
    assert trained_classes(tmp_path / 'b.safetensors') is None


def test_init_cfg_and_mmengine_read_it(tmp_path, monkeypatch):
    source = randomize(small_pvt(token_norm_cfg=dict(type='DTN')))
    state_dict = {f'backbone.{key}': value for key, value in source.state_dict().items()}
    path = tmp_path / 'detector.safetensors'
    path.write_bytes(to_bytes(dict(state_dict=state_dict, meta=META), '.safetensors'))
    assert_same_weights(pretrained(path, token_norm_cfg=dict(type='DTN')), source)
    for name in ('_safe_torch_load', 'load_url'):
        monkeypatch.setattr(loaders, name, getattr(loaders, name))
    keep_mmengine_from_unpickling()
    content = CheckpointLoader.load_checkpoint(str(path), 'cpu')
    key = next(iter(state_dict))
    assert torch.equal(content['state_dict'][key], state_dict[key])


def test_a_url_of_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    (tmp_path / 'b').mkdir()
    for name, value in (('a.safetensors', 1.0), ('b/a.safetensors', 2.0)):
        (tmp_path / name).write_bytes(to_bytes(dict(state_dict={'weight': torch.full((2,), value)}), '.safetensors'))
    with serve(tmp_path) as url:
        assert torch.equal(read_state_dict(f'{url}/a.safetensors?download=true')['weight'], torch.ones(2))
        assert read_state_dict(f'{url}/b/a.safetensors')['weight'].tolist() == [2, 2], 'not the file of the same name'
        with pytest.raises(ConnectionError, match=r'none.safetensors could not be fetched'):
            read_state_dict(f'{url}/none.safetensors')


DAMAGED = {
    'half a header': (to_bytes(dict(state_dict={'a': torch.ones(9)}), '.safetensors')[:60], 'invalid header length'),
    'half its tensors': (to_bytes(dict(state_dict={'a': torch.ones(9)}), '.safetensors')[:-4], 'not fully covered'),
    'a pickle': (b'\x80\x02}q\0.' + b'\0' * 90, 'header too large'),
}


@pytest.mark.parametrize('case', DAMAGED)
def test_damaged_files_are_named(tmp_path, case):
    content, message = DAMAGED[case]
    path = tmp_path / 'damaged.safetensors'
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f'{path} cannot be read: .*{message}'):
        read_state_dict(path)


def test_metadata_that_is_not_plain_is_refused():
    with pytest.raises(CheckpointError, match=r'metadata is not plain data: .*Tensor'):
        to_bytes(dict(state_dict={}, meta=dict(epoch=torch.ones(1))), '.safetensors')
