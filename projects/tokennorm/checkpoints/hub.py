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

    Raises:
        ConnectionError: if it cannot be fetched: no network and not in the cache, no such repository, no access.
        ImportError: if huggingface_hub is not installed.
    """
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError as error:
        raise ImportError(f'{checkpoint} needs the package huggingface_hub: pip install huggingface_hub') from error
    name = next((checkpoint.removeprefix(prefix) for prefix in PREFIXES if checkpoint.startswith(prefix)), checkpoint)
    repository, _, revision = name.partition('@')
    reason = ''
    for file in _FILES:
        try:
            return hf_hub_download(repository, file, revision=revision or None)
        except LocalEntryNotFoundError:
            reason = reason or 'it is not in the local cache and the Hub cannot be reached'
        except EntryNotFoundError:
            reason = f'the repository has neither {" nor ".join(_FILES)}'
        except Exception as error:  # several HTTP libraries' errors, none of them with a common base
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            break
    raise ConnectionError(
        f'{checkpoint} could not be fetched: {reason}. Download {_FILES[0]} of https://huggingface.co/{repository} '
        'and give its path instead'
    )
