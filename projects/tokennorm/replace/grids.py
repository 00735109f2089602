"""Finds the grid of a sequence of tokens in models that do not pass it on."""

import math
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.modules.utils import _pair
from torch.utils._pytree import tree_leaves

from tokennorm.images.padding import image_sizes_of
from tokennorm.replace.token_masks import MASKS, OF_DECODERS, Mask, lengths_of, mask_arguments_of


class StemProjection(nn.Module):
    """A TokenNorm stem that replaces the convolution of a patch embedding. Like it, it drops pixels that fill no patch.

    If the patches overlap, the stem pads the image itself.
    """

    def __init__(self, stem: nn.Module, patch_size: int, overlaps: bool) -> None:
        super().__init__()
        self.stem = stem
        self.patch_size = patch_size
        self.overlaps = overlaps

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, D, H / p, W / p)."""
        if not self.overlaps:
            height, width = (side // self.patch_size * self.patch_size for side in x.shape[-2:])
            x = x[..., :height, :width]
        return rearrange(self.stem(x), 'b h w d -> b d h w')


WINDOWED = (nn.Conv2d, nn.Unfold, nn.MaxPool2d, nn.AvgPool2d, StemProjection)


def _windows_of(unfold: nn.Unfold, x: Tensor) -> list[int]:
    """Number of windows in a column and in a row of (B, C, H, W)."""
    options = (_pair(value) for value in (unfold.kernel_size, unfold.stride, unfold.padding, unfold.dilation))
    sides = zip(x.shape[-2:], *options, strict=True)
    return [
        (side + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for side, kernel, stride, pad, dilation in sides
    ]


def _same(a: int, b: int) -> bool:
    """Whether two sizes are equal; in an exported graph, whether they are for images of any size."""
    if not torch.compiler.is_exporting():
        return a == b
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # imports SymPy

    return statically_known_true(a == b)


def this_thread() -> int:
    return 0 if torch.compiler.is_compiling() else threading.get_ident()  # torch.compile cannot trace it


class GridRecord:
    """The grids of the current forward pass of a model, with their batch sizes, and its padding masks.

    The grids come from convolutions, unfoldings, poolings, TokenNorm stems, replaced norms, and from pairs (H, W) among
    the arguments of blocks. Of two grids with the same number of tokens the later one counts, which is right in
    pyramids. A mask is read where a module around a replaced norm is called with it, and is known inside this module.
    When gradients reach the outputs of such a module, the record of its forward pass returns, for activation
    checkpointing: another pass may have followed.
    """

    def __init__(self) -> None:
        self.grids: list[tuple[int, int, int | None]] = []  # height, width, batch size
        self.image: tuple[int, int] | None = None
        self.batch = 0
        self.image_sizes: Tensor | None = None
        self.masks: tuple[Mask, ...] = ()  # of the modules that are being called, the innermost last
        self.outer: list[tuple[Mask, ...]] = []  # the masks before each of these calls
        self.lengths: list[tuple[Tensor, Tensor]] = []  # of the masks that were counted
        self.thread: int | None = None  # that is in the model's forward pass

    def watch(self, model: nn.Module, norms: Sequence[str]) -> None:
        """Registers hooks that follow the forward passes of a model and of all modules around these norms."""
        model.register_forward_pre_hook(self._start, with_kwargs=True)
        blocks = dict.fromkeys(name.rpartition('.')[0] for name in norms)
        around = dict.fromkeys('.'.join(block.split('.')[:i]) for block in blocks for i in range(block.count('.') + 2))
        for name in around:
            module = model.get_submodule(name)
            module.register_forward_pre_hook(partial(self._enter, mask_arguments_of(module)), with_kwargs=True)
            module.register_forward_hook(self._leave, always_call=True)
            if getattr(module, 'use_nested_tensor', False):  # torch's encoder: its nested tensors have no grid
                module.use_nested_tensor = False
        model.register_forward_hook(self._end, always_call=True)
        for module in model.modules():
            if isinstance(module, WINDOWED):
                module.register_forward_hook(self._after_windows)
        for name in blocks:
            model.get_submodule(name).register_forward_pre_hook(self._before_block, with_kwargs=True)

    def note(self, height: int, width: int, batch: int | None = None) -> None:
        """Remembers a grid. A batch size of None matches any batch."""
        grid = height, width, batch
        # A pass that does not call the model itself forgets no grids. In an exported graph `in` would fix the sizes.
        if not torch.compiler.is_exporting() and grid in self.grids:
            self.grids.remove(grid)
        self.grids.append(grid)

    def valid(self, grid: tuple[int, int], batch: int) -> Tensor | None:
        """The part of each image's grid that is image and not padding, int (B, 2); None if all is, or if unknown.

        Sizes noted on the batch (`tokennorm.images.padding`) are scaled to the grid and rounded down.
        """
        if self.image_sizes is None or self.image is None or not self.is_current() or not _same(self.batch, batch):
            return None
        sides = zip(self.image_sizes.unbind(1), grid, self.image, strict=True)
        return torch.stack([sizes * tokens // pixels for sizes, tokens, pixels in sides], dim=1).clamp(min=1)

    def valid_sequence(self, batch: int, tokens: int, num_prefix_tokens: int) -> Tensor | None:
        """The part of each sequence that its padding mask does not hide, as a grid of one row, int (B, 2)."""
        pairs = (tokens, tokens) if tokens != batch else None  # such a mask says which tokens attend to which
        masks = [mask for mask in self.masks if mask.values is None or mask.values.shape != pairs]
        if not masks or not (self.outer or self._is_in_backward()):
            return None
        fitting = [mask for mask in masks if mask.values is None or mask.values.shape == (batch, tokens)]
        name, owner, values = [*masks, *fitting][-1]
        if values is None:
            raise ValueError(
                f'replace_norms: {owner} has an encoder and a decoder, and a norm cannot tell whose {name} it is: '
                'replace the norms of the encoder, or of the decoder, on its own'
            )
        if not fitting:
            raise ValueError(
                f'replace_norms: {name} of {owner} is {tuple(values.shape)}, but a norm inside got {(batch, tokens)} '
                'tokens: call the module around this norm with a mask of its own, or name the norm in exclude'
            )
        length = (self._count(values, MASKS[name]) - num_prefix_tokens).clamp(min=1)
        return torch.stack([torch.ones_like(length), length], dim=1)

    def _count(self, mask: Tensor, hides: bool) -> Tensor:
        """`lengths_of`, which waits for a GPU, once for a mask that many layers are called with."""
        known = [lengths for counted, lengths in self.lengths if counted is mask]
        if not known:
            known = [lengths_of(mask, hides)]
            self.lengths.append((mask, known[0]))
        return known[0]

    def is_current(self) -> bool:
        """Whether the model itself is being called, not timm's `forward_features`, or activations are recomputed."""
        return self.thread is not None or self._is_in_backward()

    def _is_in_backward(self) -> bool:
        return torch._C._current_graph_task_id() != -1

    def _is_other_thread(self) -> bool:
        return bool((thread := this_thread()) and self.thread and self.thread != thread)

    def _start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_other_thread():
            raise RuntimeError('replace_norms: another thread calls the model; give each its own, copy.deepcopy(model)')
        self.thread = this_thread()
        self.grids.clear()
        images = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim == 4]
        self.image = tuple(images[0].shape[-2:]) if images else None
        self.batch = images[0].shape[0] if images else 0
        self.image_sizes = image_sizes_of(images[0]) if images else None

    def _end(self, model: nn.Module, args: Any, outputs: Any = None) -> None:
        if not self._is_other_thread():
            self.thread = None

    def _enter(
        self, places: dict[str, int | None], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not self.outer and not self._is_in_backward():
            self.masks = ()  # what an earlier backward pass left
        self.outer.append(self.masks)
        given = {name: args[i] for name, i in places.items() if i is not None and i < len(args)} | kwargs
        given = {name: given[name] for name in MASKS if given.get(name) is not None}
        masks = {name: mask for name, mask in given.items() if isinstance(mask, Tensor) and mask.ndim == 2}
        names = {*places, *masks}
        owner, of_two = type(module).__name__, bool(names & OF_DECODERS and names - OF_DECODERS)
        if of_two:  # the modules inside it may know which of the two masks is theirs
            self.masks = (Mask(' or '.join(masks) or 'mask', owner, None),) if masks or self.masks else ()
        elif masks:
            name, mask = next(iter(masks.items()))
            self.masks = *self.masks, Mask(name, owner, mask)
        elif names and not given and (names & OF_DECODERS or (self.masks and self.masks[-1].values is None)):
            self.masks = ()  # a sequence of its own, without padding

    def _leave(self, module: nn.Module, args: Any, outputs: Any = None) -> None:
        if self._is_other_thread():
            return
        self._return_with(outputs)
        self.masks = self.outer.pop()
        if not self.outer:
            self.lengths.clear()

    def _return_with(self, outputs: Any) -> None:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        notes = self.grids[:], self.image, self.batch, self.image_sizes, self.masks

        def restore(gradient: Tensor) -> None:
            self.grids, self.image, self.batch, self.image_sizes, self.masks = notes[0][:], *notes[1:]

        for output in tree_leaves(outputs):
            if isinstance(output, Tensor) and output.grad_fn is not None:
                known: Any = output.grad_fn.metadata
                if known.setdefault((id(self), output.output_nr), notes) is notes:  # not of a module inside this one
                    output.register_hook(restore)

    def _after_windows(self, module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        if isinstance(module, nn.Unfold):
            self.note(*_windows_of(module, args[0]), batch=out.shape[0])
        elif out.ndim == 4:
            self.note(*out.shape[-2:], batch=out.shape[0])

    def _before_block(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for value in (*args, *kwargs.values()):
            is_pair = isinstance(value, tuple | list) and len(value) == 2
            if is_pair and all(isinstance(side, int | torch.SymInt) for side in value):
                self.note(*value)

    def find(self, tokens: int, batch: int, num_prefix_tokens: Sequence[int]) -> tuple[int, tuple[int, int]] | None:
        """Number of prefix tokens and grid of a sequence: a recorded grid, else a square; None if it is neither.

        The batch size tells the pixels of each patch, as in TNT, from the grids of the image. The likeliest of
        `num_prefix_tokens` comes first.
        """
        for prefix in num_prefix_tokens:
            fitting = [grid for grid in self.grids if _same(grid[0] * grid[1], tokens - prefix)]
            of_batch = [grid for grid in fitting if grid[2] is not None and _same(grid[2], batch)]
            of_batch = of_batch or [grid for grid in fitting if grid[2] is None]
            if of_batch:
                return prefix, of_batch[-1][:2]
        if torch.compiler.is_exporting():  # a square of unknown sides has no root
            return None
        for prefix in num_prefix_tokens:
            side = math.isqrt(max(tokens - prefix, 0))
            if side and side * side == tokens - prefix:
                return prefix, (side, side)
        return None
