"""What is changed in OpenMMLab's packages, and their private functions, for the originals and the forks (onedl-...).

Read in mmengine 0.10.7 and onedl-mmengine 0.10.12, mmdet 3.3.0 and onedl-mmdetection 3.5.1. A change lasts as long as
the process. These are all:

- `make_mmengine_find_configs`: mmengine's table of packages with configs, when `tokennorm.registry` is imported.
- `make_mmengine_read_with`: mmengine's reader of checkpoints, when a runner or a detector is built; with the original
  mmengine also when a config names one of TokenNorm's models.
- `make_mmengine_write_json`: mmengine's writer of JSON, when a runner is built.
- `make_ssd_predict`: an attribute of mmdet's SSDHead, when a runner or a detector is built.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any


def make_mmengine_find_configs() -> None:
    """Makes `_base_ = 'tokennorm::...'` and `get_config` find the configs of this package.

    mmengine's table lacks tokennorm, and names the original mmsegmentation.
    """
    from mmengine.config.utils import MODULE2PACKAGE

    MODULE2PACKAGE.update(tokennorm='tokennorm', mmseg='mmseg')


def release_mmengines_lock() -> None:
    """Releases mmengine's lock of instances as often as this thread holds it.

    mmengine keeps it where a constructor raises, such as that of a logger, and other threads would wait for ever.
    """
    from mmengine.utils import manager

    with suppress(RuntimeError):  # this thread does not hold it
        while True:
            manager._lock.release()


def make_ssd_predict() -> None:
    """Gives mmdet's SSDHead an attribute that versions 3.3 to 3.5 read in predictions and do not set."""
    from mmdet.models import SSDHead

    SSDHead.loss_cls = None


def make_mmengine_read_with(read: Callable[..., Any]) -> None:
    """Makes mmengine read every checkpoint with `read(file, map_location)`, files and URLs.

    The forks read files with `_safe_torch_load`, the originals with `torch.load`, which reads tensors only since torch
    2.6. The latter remains for the originals' schemes pavi://, s3:// and openmmlab://.
    """
    from mmengine.runner import checkpoint

    checkpoint.CheckpointLoader.register_scheme('', read, force=True)
    checkpoint.load_url = read
    if hasattr(checkpoint, '_safe_torch_load'):
        checkpoint._safe_torch_load = read


def make_mmengine_write_json(as_text: Callable[..., str]) -> None:
    """Makes mmengine write JSON files with `as_text(value, **options)`, which takes the options of `json.dumps`.

    Its own handler writes NaN, which JSON has not.
    """
    from mmengine.fileio import register_handler
    from mmengine.fileio.handlers import JsonHandler
    from mmengine.fileio.handlers.json_handler import set_default

    @register_handler('json')
    class Handler(JsonHandler):
        def dump_to_fileobj(self, obj: Any, file: Any, **options: Any) -> None:
            file.write(self.dump_to_str(obj, **options))

        def dump_to_str(self, obj: Any, **options: Any) -> str:
            return as_text(obj, **dict(default=set_default) | options)


def mmengine_reads_its_checkpoints() -> bool:
    """Whether it does with torch 2.6 or newer: the original does not, since its histories are not tensors."""
    from mmengine.runner import checkpoint

    return hasattr(checkpoint, '_safe_torch_load')
