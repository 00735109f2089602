"""Checkpoints of the Hugging Face Hub: `hf-hub:owner/name`, `hf-hub:owner/name@revision` and `timm/name.tag`."""

import re
from pathlib import Path

PREFIXES = ('hf-hub:', 'hf_hub:')
_FILES = ('model.safetensors', 'pytorch_model.bin')
_TIMM = re.compile(r'timm/[\w.-]+')


def is_hub_name(checkpoint: str | Path) -> bool:
    """Whether a checkpoint is named by its name on the Hub. An existing file `timm/...` takes precedence."""
    name = str(checkpoint)
    return name.startswith(PREFIXES) or bool(_TIMM.fullmatch(name) and not Path(name).exists())


def fetch_from_hub(checkpoint: str) -> str:
    """The local file of a model on the Hub: from huggingface_hub's cache, or downloaded into it.

    A repository's `model.safetensors` is used, or else its `pytorch_model.bin`. With `HF_HUB_OFFLINE=1` only the cache
    is used.
    """
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise ImportError(f'{checkpoint} needs the package huggingface_hub: pip install huggingface_hub') from error
    name = checkpoint.removeprefix(PREFIXES[0]).removeprefix(PREFIXES[1])
    repository, _, revision = name.partition('@')
    reasons = []
    for file in _FILES:
        try:
            return hf_hub_download(repository, file, revision=revision or None)
        except Exception as error:  # errors of several HTTP libraries, without a common base
            reasons.append(' '.join(str(error).split()) or type(error).__name__)
    raise ConnectionError(
        f'{checkpoint} could not be fetched: {reasons[0]:.300}. Download {_FILES[0]} of '
        f'https://huggingface.co/{repository} and give its path instead'
    )
