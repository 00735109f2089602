"""Checkpoints as .safetensors: equal to .pth bit for bit, and damaged files are named."""

import json
import struct

import pytest
import torch

from tokennorm.checkpoints import CheckpointError, read_checkpoint, read_state_dict
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
    (length,) = struct.unpack('<Q', written[:8])
    metadata = json.loads(written[8 : 8 + length])['__metadata__']
    assert json.loads(metadata['meta'])['cfg'] == 'model = 1\n'
    assert length % 8 == 0


def test_a_file_of_another_program_is_read_without_its_metadata(tmp_path):
    from safetensors.torch import save_file

    for metadata in ({'classes': 'not JSON', 'meta': '[1]'}, {'meta': '[' * 100_000}, None):
        save_file({'weight': torch.ones(2)}, tmp_path / 'a.safetensors', metadata)
        assert read_checkpoint(tmp_path / 'a.safetensors')['meta'] == {}
        assert torch.equal(read_state_dict(tmp_path / 'a.safetensors')['weight'], torch.ones(2))


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
