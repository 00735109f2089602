"""Checkpoints are found: on the Hugging Face Hub, in packages, in a work directory. No test needs a network."""

import hashlib
import os
from importlib import metadata
from pathlib import Path

import pytest

from tests.helpers.checkpoints import assert_same_weights, pretrained
from tests.helpers.pvt import small_pvt
from tests.helpers.weights import randomize
from tokennorm.checkpoints import CheckpointError, find_checkpoint
from tokennorm.checkpoints import locating as finding
from tokennorm.checkpoints.locating import PackagedWeights, download, newest_checkpoint, packaged_file
from tokennorm.checkpoints.publication import to_bytes

constants = pytest.importorskip('huggingface_hub.constants')
COMMIT = '0123456789' * 4


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of huggingface_hub, offline. Returns a function that puts a file into it."""
    monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'hub'))
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)

    def put(repository, name, content, revision='main'):
        folder = tmp_path / 'hub' / f'models--{repository.replace("/", "--")}'
        snapshot = folder / 'snapshots' / COMMIT
        snapshot.mkdir(parents=True, exist_ok=True)
        (folder / 'refs').mkdir(exist_ok=True)
        (folder / 'refs' / revision).write_text(COMMIT)
        (snapshot / name).write_bytes(content)
        return snapshot / name

    return put


def test_a_cached_model_fills_the_backbone(cache):
    source = randomize(small_pvt())
    content = dict(state_dict=source.state_dict())
    path = cache('owner/name', 'model.safetensors', to_bytes(content, '.safetensors'))
    assert find_checkpoint('hf-hub:owner/name') == str(path)
    assert_same_weights(pretrained('hf-hub:owner/name'), source)
    cache('owner/pickled', 'pytorch_model.bin', to_bytes(content), 'v1')
    assert_same_weights(pretrained('hf-hub:owner/pickled@v1'), source)


@pytest.mark.parametrize('name', ['hf-hub:owner/none', 'timm/none.in1k'])
def test_a_model_that_is_not_cached_names_the_local_alternative(cache, name):
    with pytest.raises(CheckpointError, match=f'{name} could not be fetched: .*cache.*Download '):
        pretrained(name)


def test_weights_of_a_package_are_checked(monkeypatch):
    path = Path(str(metadata.distribution('einops').locate_file('einops/__init__.py')))
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    weights = {'pip:einops': PackagedWeights('einops', 'einops/__init__.py', content, '')}
    monkeypatch.setattr(finding, 'PACKAGED', weights)
    assert find_checkpoint('pip:einops') == str(packaged_file('pip:einops')) == str(path)
    weights['pip:einops'] = PackagedWeights('einops', 'einops/__init__.py', '0' * 64, '')
    with pytest.raises(CheckpointError, match='not the file that was tested'):
        packaged_file('pip:einops')


def test_a_work_directory_is_its_best_checkpoint(tmp_path):
    for name in ('epoch_9.pth', 'best_coco_bbox_mAP_epoch_3.pth', 'best_coco_bbox_mAP_epoch_7.pth'):
        (tmp_path / name).touch()
    os.utime(tmp_path / 'best_coco_bbox_mAP_epoch_7.pth', (1, 1))  # of an earlier run
    (tmp_path / 'last_checkpoint').write_text('epoch_9.pth')
    assert find_checkpoint(tmp_path) == str(tmp_path / 'best_coco_bbox_mAP_epoch_3.pth')
    assert newest_checkpoint(tmp_path) == tmp_path / 'epoch_9.pth'


def test_a_rank_takes_the_file_that_another_one_has_downloaded(tmp_path, monkeypatch):
    class LockOfAnother:
        def __init__(self, path):
            self.path = Path(path)

        def __enter__(self):
            self.path.with_name(self.path.name[1:].removesuffix('.lock')).write_bytes(b'its file')

        def __exit__(self, *_):
            pass

    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    monkeypatch.setattr('filelock.FileLock', LockOfAnother)
    assert download('http://127.0.0.1:9/a.pth').read_bytes() == b'its file'


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
