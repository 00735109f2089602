"""Private and patched APIs of the upstream libraries, each with the version that it was read in.

mmengine is onedl-mmengine 0.10.12 and mmdet is onedl-mmdetection 3.5.1. Some are elsewhere: the library may not import
this package, so that `config_paths` has mmengine's table of packages and `checkpoints.in_mmengine` its checkpoint
loaders, and `backbones.timm_backbone` has timm's. `hooks.checkpoint` extends a private method of mmengine's hook.
"""

from mmengine.runner import BaseLoop, Runner
from torch import nn


def built_loops(runner: Runner) -> list[BaseLoop]:
    """Returns the loops that a runner has built; the others are configs still (mmengine 0.10.12)."""
    loops = (runner._train_loop, runner._val_loop, runner._test_loop)
    return [loop for loop in loops if hasattr(loop, 'dataloader')]


def is_resuming(runner: Runner) -> bool:
    """Returns whether the checkpoint that a runner loads is resumed from (mmengine 0.10.12)."""
    return runner._resume


def loaded_checkpoint(runner: Runner) -> str | None:
    """Returns the path of the checkpoint that a runner was given (mmengine 0.10.12)."""
    return runner._load_from


def decide_val_interval(loop: BaseLoop) -> None:
    """Sets `val_interval` from `dynamic_intervals`, as the loop does when it reaches an epoch (mmengine 0.10.12)."""
    loop._decide_current_val_interval()


def set_passes(loop: BaseLoop, passes: int) -> None:
    """Sets how many passes over the data the iterator of an iteration-based loop has made (mmengine 0.10.12)."""
    loop.dataloader_iterator._epoch = passes


def input_sizes(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Returns the sizes that mmdet's `BatchSyncRandomResize` draws for several batches, by module (mmdet 3.5.1)."""
    return {name: module._input_size for name, module in model.named_modules() if getattr(module, '_input_size', None)}


def set_input_sizes(model: nn.Module, sizes: dict[str, tuple[int, int]]) -> None:
    """Restores `input_sizes`; modules without one keep theirs (mmdet 3.5.1)."""
    for name, module in model.named_modules():
        if name in sizes and hasattr(module, '_input_size'):
            module._input_size = tuple(sizes[name])
