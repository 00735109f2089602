"""Safe reading of the checkpoints that mmengine loads: resuming, `load_from`, third-party backbones."""

from typing import Any

from mmengine.runner import checkpoint as loaders

from tokennorm.checkpoints.reading import read_checkpoint


def keep_mmengine_from_unpickling() -> None:
    """Makes mmengine read every checkpoint with `read_checkpoint`.

    Otherwise it falls back to unpickling files that `weights_only` refuses, and always unpickles URLs.
    """
    for name in ('_safe_torch_load', 'load_url'):
        if not hasattr(loaders, name):
            raise RuntimeError(f'mmengine.runner.checkpoint has no {name}: it is not the version of requirements/')
        setattr(loaders, name, _read)


def _read(checkpoint: Any, map_location: Any = None, **_: Any) -> Any:
    """Reads a checkpoint without `meta.config` of older runners, a text that mmengine runs as Python on resuming."""
    content = read_checkpoint(checkpoint, map_location)
    if isinstance(content, dict) and isinstance(content.get('meta'), dict):
        content['meta'].pop('config', None)
    return content
