"""What a checkpoint held is read, from a file or a URL, and damaged files are named."""

import hashlib
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
from tokennorm.checkpoints import Checkpoint, CheckpointError, read_checkpoint, read_state_dict
from tokennorm.checkpoints.publication import to_bytes
from tokennorm.checkpoints.safe_reading import _read_for_mmengine, keep_mmengine_from_unpickling
from tokennorm.findings import Findings, Refusal, judging

DAMAGED = {
    'half a header': (to_bytes(dict(state_dict={'a': torch.ones(9)}), '.safetensors')[:60], 'invalid header length'),
    'half its tensors': (to_bytes(dict(state_dict={'a': torch.ones(9)}), '.safetensors')[:-4], 'not fully covered'),
    'a pickle': (b'\x80\x02}q\0.' + b'\0' * 90, 'header too large'),
}


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


@pytest.fixture
def mmengines_loaders(monkeypatch):
    """Puts mmengine's own back afterwards."""
    for name in {'_safe_torch_load', 'load_url'} & set(vars(mmengines)):  # the originals have the second only
        monkeypatch.setattr(mmengines, name, getattr(mmengines, name))
    monkeypatch.setattr(CheckpointLoader, '_schemes', dict(CheckpointLoader._schemes))


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


def test_a_file_of_another_program_is_read_without_its_metadata(tmp_path):
    from safetensors.torch import save_file

    for metadata in ({'classes': 'not JSON', 'meta': '[1]'}, {'meta': '[' * 100_000}, None):
        save_file({'weight': torch.ones(2)}, tmp_path / 'a.safetensors', metadata)
        assert read_checkpoint(tmp_path / 'a.safetensors')['meta'] == {}
        assert torch.equal(read_state_dict(tmp_path / 'a.safetensors')['weight'], torch.ones(2))


@pytest.mark.parametrize('case', DAMAGED)
def test_damaged_files_are_named(tmp_path, case):
    content, message = DAMAGED[case]
    path = tmp_path / 'damaged.safetensors'
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f'{path} cannot be read: .*{message}'):
        read_state_dict(path)


NAN, INF = float('nan'), float('inf')
MASK = torch.full((4, 4), -INF).triu(1)


def planted(value, key='head.weight', dtype=torch.float32):
    weights = {'backbone.weight': torch.randn(3, 4), 'n': torch.tensor(3), key: torch.randn(8, 8).to(dtype)}
    weights[key].view(-1)[5] = value
    return weights


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2])
@pytest.mark.parametrize('value', [NAN, INF, -INF])
def test_weights_that_are_not_finite_are_named(tmp_path, value, dtype):
    torch.save(dict(state_dict=planted(value, dtype=dtype)), tmp_path / 'a.pth')
    with pytest.raises(
        CheckpointError, match=r'a.pth has values that are not finite, .* in 1 of 3 tensors: head.weight\.'
    ):
        read_checkpoint(tmp_path / 'a.pth')


@pytest.mark.parametrize(
    ('content', 'name'),
    [
        (planted(NAN), 'head.weight'),
        (dict(model=planted(NAN)), 'head.weight'),
        (dict(state_dict=planted(0), ema_state_dict=planted(NAN)), 'ema_state_dict.head.weight'),
        (dict(state_dict=planted(NAN, 'bn.running_var')), 'bn.running_var'),
        (dict(state_dict=planted(INF, 'norm.mean_logit')), 'norm.mean_logit'),
        (dict(state_dict={'a.bias': torch.full((3,), INF)}), 'a.bias'),
        (dict(state_dict={'a.mask': torch.where(MASK < 0, NAN, 0.0)}), 'a.mask'),
        (dict(state_dict={'a.z': torch.tensor([1 + 1j, complex(NAN, 0)])}), 'a.z'),
    ],
)  # fmt: skip
def test_every_kind_of_checkpoint_is_looked_at(tmp_path, content, name):
    torch.save(content, tmp_path / 'a.pth')
    for read in (Checkpoint.read, read_checkpoint, read_state_dict, _read_for_mmengine):
        with pytest.raises(CheckpointError, match=rf'tensors: {name}\. Its training diverged'):
            read(tmp_path / 'a.pth')


def test_safetensors_that_are_not_finite_are_named(tmp_path):
    (tmp_path / 'a.safetensors').write_bytes(to_bytes(dict(state_dict=planted(NAN)), '.safetensors'))
    with pytest.raises(CheckpointError, match=r'a.safetensors has values that are not finite'):
        read_checkpoint(tmp_path / 'a.safetensors')


@pytest.mark.parametrize(
    'more',
    [
        {'attn_mask': MASK},  # CLIP
        {'attn.mask': torch.full((2, 3, 3), -INF)},
        {'observer.min_val': torch.tensor(INF), 'observer.max_val': torch.tensor(-INF)},  # of quantization
        {'seen.min_val': torch.full((5,), INF)},
        {'big.weight': torch.full((9, 9), 3e38)},  # the sum overflows
        {'big.weight': torch.full((99, 99), 6e4, dtype=torch.float16)},
        {'mixed.weight': torch.tensor([3e38, 3e38, -3e38, -3e38])},
        {'empty.weight': torch.zeros(0, 4)},
        {'relative_position_index': torch.arange(9)},
        {'flag': torch.tensor(True)},
        {'attn_mask_100': torch.tensor([0.0, -100.0])},  # Swin
        {'f8.weight': torch.ones(4, dtype=torch.float8_e4m3fn)},
        {'bias_row': torch.tensor([0.0, 0.0, -INF, INF])},
        {'sparse.weight': torch.eye(3).to_sparse()},
    ],
    ids=lambda more: next(iter(more)),
)
def test_values_that_are_infinite_on_purpose_stay_quiet(tmp_path, more):
    torch.save(dict(state_dict=planted(0) | more, optimizer=dict(x=torch.tensor(NAN))), tmp_path / 'a.pth')
    assert read_checkpoint(tmp_path / 'a.pth')['state_dict'].keys() == (planted(0) | more).keys()


def test_a_user_may_read_weights_that_are_not_finite(tmp_path, capsys):
    torch.save(dict(state_dict=planted(NAN)), tmp_path / 'a.pth')
    with judging(Findings(['non-finite-weights'])):
        assert read_checkpoint(tmp_path / 'a.pth')['state_dict']['head.weight'].isnan().sum() == 1
    assert '1 of ' in capsys.readouterr().out
    with judging(Findings()), pytest.raises(Refusal) as refusal:
        read_checkpoint(tmp_path / 'a.pth')
    assert [(one.code, one.items) for one in refusal.value.findings] == [('non-finite-weights', ('head.weight',))]
