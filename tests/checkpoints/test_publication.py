"""Checkpoints as they are written: for others, and as .safetensors."""

import json
import struct

import torch
from mmengine import Config

from tokennorm.checkpoints import read_checkpoint
from tokennorm.checkpoints.publication import for_publication, to_bytes
from tokennorm.findings import Findings, judging

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


def test_paths_of_this_machine_become_names():
    texts = [
        '/data/ü/a.json',
        '/data/images/',
        'C:/d/e.pth',
        'C:\\d\\f',
        '//nas/share/x',
        '//nas/y',
        '\\\\nas\\h',
        '\\\\nas\\s\\g',
        "/o'b/c d",
    ]
    same = ['a/b', 'mmdet::a/b', 'https://x.org/a.pth', '/', "('/data/'"]
    content = dict(state_dict=dict(a=torch.ones(1)), meta=dict(cfg=f'a = {texts!r}\nb = {same!r}\n'))
    published = Config.fromstring(for_publication(content, 'x')['meta']['cfg'], '.py')
    assert (published.a, published.b) == (['a.json', 'images', 'e.pth', 'f', 'x', 'y', 'h', 'g', 'c d'], same)


def test_it_gives_back_every_bit_with_classes_and_config(tmp_path):
    expected = weights()
    written = to_bytes(dict(state_dict=expected, meta=META), '.safetensors')
    assert written == to_bytes(dict(state_dict=expected, meta=META), '.safetensors')
    path = tmp_path / 'mini.safetensors'
    path.write_bytes(written)
    with judging(Findings(['non-finite-weights'])):
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
