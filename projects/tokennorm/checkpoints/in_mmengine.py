"""mmengine's reading of checkpoints, for what our tools leave to it: resuming, `load_from`, backbones of others."""

from pathlib import Path
from typing import Any

from mmengine.runner import checkpoint as loaders

from tokennorm.checkpoints.reading import CheckpointError, read_checkpoint


def keep_mmengine_from_unpickling() -> None:
    """From here on mmengine reads checkpoints as `read_checkpoint` does, whatever scheme finds them.

    Left alone, it reads without `weights_only` what it cannot read with it, and addresses always.

    Raises:
        RuntimeError: where this mmengine reads in another way.
    """
    for name in ('_safe_torch_load', 'load_url'):
        if not hasattr(loaders, name):
            raise RuntimeError(f'mmengine.runner.checkpoint has no {name}: it is not the version of requirements/')
        setattr(loaders, name, _read)


def _read(checkpoint: Any, map_location: Any = None, **_: Any) -> Any:
    """Without the `config` of older runners' `meta`, a text that mmengine runs as Python when it resumes."""
    if not isinstance(checkpoint, str | Path):
        raise CheckpointError('checkpoints of pavi:// and petrel:// are not read; name a file')
    content = read_checkpoint(checkpoint, map_location)
    if isinstance(content, dict) and isinstance(content.get('meta'), dict):
        content['meta'].pop('config', None)
    return content
