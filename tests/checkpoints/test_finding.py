"""Checkpoints are found: on the Hugging Face Hub, from a local cache, and in packages. No test needs a network."""

import hashlib
from importlib import metadata
from pathlib import Path

import pytest

from tests.helpers.checkpoints import assert_same_weights, pretrained
from tests.helpers.pvt import small_pvt
from tests.helpers.weights import randomize
from tokennorm.checkpoints import CheckpointError, find_checkpoint, finding
from tokennorm.checkpoints.finding import PackagedWeights, packaged_file
from tokennorm.checkpoints.writing import to_bytes

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
