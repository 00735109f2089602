"""Reading a checkpoint runs no code of it, gives what it held, and finds that of a work directory."""

import argparse
import hashlib
import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import checkpoint as mmengines
from mmengine.runner.checkpoint import CheckpointLoader

from tests.helpers.checkpoints import Planted, assert_same, assert_same_weights, pretrained
from tests.helpers.http import serve
from tests.helpers.pvt import published_layout, small_pvt
from tests.helpers.weights import randomize
from tokennorm.checkpoints import CheckpointError, find_checkpoint, read_checkpoint, read_state_dict
from tokennorm.checkpoints.finding import newest_checkpoint
from tokennorm.checkpoints.reading import keep_mmengine_from_unpickling


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


def test_an_address_is_read_as_safely_as_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    with serve(tmp_path) as address:
        source = randomize(small_pvt())
        torch.save({'state_dict': published_layout(source)}, tmp_path / 'pvt.pth')
        assert_same_weights(pretrained(f'{address}/pvt.pth'), source)
        torch.save({'state_dict': {}, 'planted': Planted(tmp_path)}, tmp_path / 'planted.pth')
        with pytest.raises(RuntimeError, match='cannot be read as tensors only'):
            read_state_dict(f'{address}/planted.pth')
        assert not (tmp_path / 'ran').exists()
        with pytest.raises(CheckpointError, match=r'none.pth could not be fetched'):
            read_state_dict(f'{address}/none.pth')
        with pytest.raises(CheckpointError, match=r"a b.pth could not be fetched: URL can't contain control"):
            read_state_dict(f'{address}/a b.pth')


def test_files_of_one_name_in_two_folders_are_two_files(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    for run in ('run1', 'run2'):
        (tmp_path / run).mkdir()
        torch.save(dict(state_dict=dict(run=torch.tensor(int(run[-1])))), tmp_path / run / 'best.pth')
    with serve(tmp_path) as address:
        assert [int(read_state_dict(f'{address}/run{i}/best.pth')['run']) for i in (1, 2, 1)] == [1, 2, 1]


def test_weights_of_openmmlab_come_from_a_mirror(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    torch.save(dict(state_dict=dict(a=torch.ones(1))), tmp_path / 'a.pth')
    name = f'a-{hashlib.sha256((tmp_path / "a.pth").read_bytes()).hexdigest()[:8]}.pth'
    (tmp_path / 'v2.0').mkdir()
    (tmp_path / 'a.pth').rename(tmp_path / 'v2.0' / name)
    url = f'https://download.openmmlab.com/v2.0/{name}'
    with serve(tmp_path) as address:
        monkeypatch.setenv('TOKENNORM_MIRROR', f'{address}/elsewhere')
        with pytest.raises(CheckpointError, match=r'save it as .*or set TOKENNORM_MIRROR'):
            read_state_dict(url)
        monkeypatch.setenv('TOKENNORM_MIRROR', f'{address}/')
        assert read_state_dict(url)['a'].tolist() == [1]


def test_what_a_runner_saves_comes_back_as_it_was(tmp_path):
    """Growing histories, numbers and arrays of numpy in every order of bytes and of axes, and a dict's metadata."""
    arrays = [np.arange(6, dtype=dtype).reshape(2, 3) for dtype in ('<f8', '>f4', 'f2', '<i8', '>u2', 'u4', 'i1', 'u1')]
    state_dict = OrderedDict(weight=torch.randn(2, 3))
    state_dict._metadata = OrderedDict({'': dict(version=2)})
    content = dict(
        state_dict=state_dict,
        optimizer=dict(state={0: dict(step=torch.tensor(3.0))}, param_groups=[dict(lr=0.1, params=[0])]),
        meta=dict(epoch=1, loss=np.float32(0.1), best=np.float64(1 / 3), count=np.int64(7), flag=np.bool_(True)),
        random=('MT19937', np.random.RandomState(0).get_state()[1], 624, 0, 0.0),
        arrays=[*arrays, np.asfortranarray(arrays[0]), np.array([True, False]), np.zeros((0, 2)), np.array(1.5)],
        containers=[(1, None), {'a', 'b'}, b'bytes', b'', 2**70, float('inf')],
    )
    torch.save(content, tmp_path / 'epoch_1.pth')
    read = read_checkpoint(tmp_path / 'epoch_1.pth')
    assert_same('content', read, content)
    assert read['state_dict']._metadata == state_dict._metadata

    history = HistoryBuffer([1.0, 2.0, 4.0], [1, 1, 2], max_length=4)
    torch.save(dict(first=history, again=[history]), tmp_path / 'history.pth')
    read = read_checkpoint(tmp_path / 'history.pth')
    for one in (history, read['first']):
        one.update(8.0, 1)
        one.update(16.0, 1)
    del history.statistics_methods  # which saving it left there
    assert_same('history', vars(read['first']), vars(history))
    assert read['first'].statistics('mean', 2) == history.statistics('mean', 2) == 12


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


@pytest.fixture
def mmengines_loaders(monkeypatch):
    """Puts mmengine's own back afterwards."""
    for name in {'_safe_torch_load', 'load_url'} & set(vars(mmengines)):  # the originals have the second only
        monkeypatch.setattr(mmengines, name, getattr(mmengines, name))
    monkeypatch.setattr(CheckpointLoader, '_schemes', dict(CheckpointLoader._schemes))


def test_lists_that_share_lists_are_read_once(tmp_path):
    shared = [1]
    for _ in range(40):  # 2 ** 40 paths lead to the first list
        shared = [shared, shared]
    torch.save(dict(state_dict={}, shared=shared), tmp_path / 'shared.pth')
    left, right = read_checkpoint(tmp_path / 'shared.pth')['shared']
    assert left is right


def test_mmengine_reads_no_code_by_any_scheme(tmp_path, monkeypatch, mmengines_loaders):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    monkeypatch.setenv('MMENGINE_HOME', str(tmp_path))
    keep_mmengine_from_unpickling()
    keep_mmengine_from_unpickling()
    with serve(tmp_path) as address:
        monkeypatch.setattr(mmengines, 'get_torchvision_models', lambda: {'planted': f'{address}/code.pth'})
        monkeypatch.setattr(mmengines, 'get_mmcls_models', lambda: {'planted': f'{address}/code.pth'})
        monkeypatch.setattr(mmengines, 'get_external_models', lambda: {'planted': 'code.pth'})
        names = ['torchvision://planted', 'mmcls://planted', 'open-mmlab://planted']
        torch.save(dict(state_dict={}, planted=[(Planted(tmp_path),)]), tmp_path / 'code.pth')
        for name in [*names, f'{address}/code.pth', str(tmp_path / 'code.pth')]:
            with pytest.raises(CheckpointError, match='cannot be read as tensors only'):
                CheckpointLoader.load_checkpoint(name, 'cpu')
            assert not (tmp_path / 'ran').exists(), name


def test_mmengine_gets_no_config_to_run(tmp_path, mmengines_loaders):
    """It runs `meta.config` as Python when it resumes; its own checkpoints have their config in `meta.cfg`."""
    keep_mmengine_from_unpickling()
    torch.save(dict(state_dict={}, meta=dict(config='raise SystemError', cfg='model = 1')), tmp_path / 'old.pth')
    assert CheckpointLoader.load_checkpoint(str(tmp_path / 'old.pth'))['meta'] == dict(cfg='model = 1')


def test_mmengine_gets_weights_without_prefixes_of_wrappers(tmp_path, mmengines_loaders):
    keep_mmengine_from_unpickling()
    one = torch.ones(1)
    files = [
        {'module.encoder_q.a': one},
        {'state_dict': {'_orig_mod.encoder_q.a': one}, 'meta': {}},
        {'model': {'model.encoder_q.a': one}, 'pytorch-lightning_version': '2'},
    ]
    for content in files:
        torch.save(content, tmp_path / 'weights.pth')
        loaded = CheckpointLoader.load_checkpoint(str(tmp_path / 'weights.pth'))
        assert loaded['state_dict'] == {'encoder_q.a': one}
        assert loaded.get('meta') == content.get('meta')
    torch.save(dict(state_dict=torch.nn.BatchNorm1d(2).state_dict()), tmp_path / 'weights.pth')
    assert CheckpointLoader.load_checkpoint(str(tmp_path / 'weights.pth'))['state_dict']._metadata


def test_a_text_file_is_not_a_checkpoint(tmp_path):
    for content, kind in (
        (b'hello', r"empty, or begins with b'hello'"),
        (b'\xff\xd8\xff\xe0 of a camera', 'a JPEG image'),
        (b'<!doctype html>', 'HTML or XML'),
        (b'version https://git-lfs.github.com/spec/v1', 'a pointer of Git LFS'),
        (b'\x80\x02' + bytes(range(27, 60)), 'cut off, damaged'),
    ):
        (tmp_path / 'a.pth').write_bytes(content)
        with pytest.raises(CheckpointError, match=rf'a.pth .*: it is {kind}'):
            read_checkpoint(tmp_path / 'a.pth')


def test_a_work_directory_is_its_best_checkpoint(tmp_path):
    for name in ('epoch_9.pth', 'best_coco_bbox_mAP_epoch_3.pth', 'best_coco_bbox_mAP_epoch_7.pth'):
        (tmp_path / name).touch()
    os.utime(tmp_path / 'best_coco_bbox_mAP_epoch_7.pth', (1, 1))  # of an earlier run
    (tmp_path / 'last_checkpoint').write_text('epoch_9.pth')
    assert find_checkpoint(tmp_path) == str(tmp_path / 'best_coco_bbox_mAP_epoch_3.pth')
    assert newest_checkpoint(tmp_path) == tmp_path / 'epoch_9.pth'


def test_work_dir_without_best_checkpoint_uses_the_latest(tmp_path):
    folder = tmp_path / 'work'
    folder.mkdir()
    with pytest.raises(CheckpointError, match=r'work has no checkpoint: no best_\*.pth, last_checkpoint, epoch_N'):
        find_checkpoint(folder)
    for name in ('epoch_9.pth', 'epoch_10.pth', 'best.pth', 'epoch_x.pth'):
        (folder / name).touch()
    assert find_checkpoint(folder) == str(folder / 'epoch_10.pth')
    (folder / 'last_checkpoint').write_text('/moved/from/here/epoch_9.pth\n')
    assert find_checkpoint(folder) == str(folder / 'epoch_9.pth')
    other = tmp_path / 'out_dir'  # of the checkpoint hook
    other.mkdir()
    for name in ('best_ap_epoch_3.pth', 'epoch_4.pth'):
        (other / name).touch()
    (folder / 'last_checkpoint').write_text(str(other / 'epoch_4.pth'))
    assert find_checkpoint(folder) == str(other / 'best_ap_epoch_3.pth')
    (tmp_path / 'iter_3.pth').touch()
    (folder / 'last_checkpoint').write_text(str(tmp_path / 'iter_3.pth'))  # `out_dir` of the hook
    assert find_checkpoint(folder) == str(tmp_path / 'iter_3.pth')
    (folder / 'last_checkpoint').write_text('epoch_12.pth')  # lost
    assert find_checkpoint(folder) == str(folder / 'epoch_10.pth')
    assert find_checkpoint('https://host/epoch_1.pth') == 'https://host/epoch_1.pth'
    with pytest.raises(CheckpointError, match=r'checkpoint .*none.pth not found'):
        find_checkpoint(folder / 'none.pth')
