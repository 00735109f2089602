"""Reading a checkpoint runs no code of it."""

import argparse
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer

from tests.helpers.checkpoints import Planted
from tokennorm.checkpoints import CheckpointError, read_checkpoint, read_state_dict


class PlantedArray:
    """What runner checkpoints hold, with values that would make numpy follow an address in the file."""

    def __reduce__(self):
        return (np.ndarray, ((1,), PlantedDtype(), b'AAAAAAAA'))


class PlantedDtype:
    def __reduce__(self):
        return (np.dtype, ('O', False, True))


def test_a_checkpoint_with_code_is_refused_and_nothing_runs(tmp_path):
    torch.save({'state_dict': {}, 'planted': Planted(tmp_path)}, tmp_path / 'planted.pth')
    would_call = r'cannot be read as tensors only: reading it would call (posix|nt)\.mkdir'
    with pytest.raises(CheckpointError, match=would_call) as caught:
        read_state_dict(tmp_path / 'planted.pth')
    assert 'weights_only' not in str(caught.value)
    assert not (tmp_path / 'ran').exists()
    torch.save({'state_dict': {}, 'planted': PlantedArray()}, tmp_path / 'array.pth')
    with pytest.raises(RuntimeError, match='a numpy array has no content'):
        read_state_dict(tmp_path / 'array.pth')
    poisoned = HistoryBuffer()
    methods = dict(HistoryBuffer._statistics_methods)
    poisoned._statistics_methods = {'mean': np.ndarray}
    torch.save({'state_dict': {}, 'planted': poisoned}, tmp_path / 'history.pth')
    HistoryBuffer._statistics_methods.clear()
    HistoryBuffer._statistics_methods.update(methods)
    assert read_checkpoint(tmp_path / 'history.pth')['state_dict'] == {}
    assert HistoryBuffer._statistics_methods == methods
    pickle.dump(Planted(tmp_path), (tmp_path / 'bare.pth').open('wb'))
    with pytest.raises(RuntimeError, match='cannot be read as tensors only'):
        read_state_dict(tmp_path / 'bare.pth')
    assert not (tmp_path / 'ran').exists()


class Settings(dict):
    """A class that only its author's code has, as that of the config in Swin's files."""


def test_objects_of_other_classes_are_dicts(tmp_path):
    content = dict(args=argparse.Namespace(lr=0.1, items=1), config=Settings(a=1), save=np.save, loss=[np.float32(0.5)])
    torch.save(dict(model={'weight': torch.ones(1)}, **content), tmp_path / 'swin.pth')
    assert read_state_dict(tmp_path / 'swin.pth') == {'weight': torch.ones(1)}
    read = read_checkpoint(tmp_path / 'swin.pth')
    assert read['loss'] == [0.5]
    assert (type(read['args']), type(read['config'])) == (OrderedDict, OrderedDict)
    assert read['save'] is not np.save
    assert list(read['args'].items()) == []  # its own method, not the attribute of the file


def test_lists_that_share_lists_are_read_once(tmp_path):
    shared = [1]
    for _ in range(40):  # 2 ** 40 paths lead to the first list
        shared = [shared, shared]
    torch.save(dict(state_dict={}, shared=shared), tmp_path / 'shared.pth')
    left, right = read_checkpoint(tmp_path / 'shared.pth')['shared']
    assert left is right
