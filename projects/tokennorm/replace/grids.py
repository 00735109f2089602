"""Finds the grid of a sequence of tokens in models that do not pass it on."""

import inspect
import math
import threading
from collections.abc import Sequence
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.modules.utils import _pair
from torch.utils._pytree import tree_leaves

from tokennorm.padding import image_sizes_of


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


MASKS = dict(  # arguments of a sequence, and whether True hides a token
    attention_mask=False, decoder_attention_mask=False, src_key_padding_mask=True, tgt_key_padding_mask=True
)
OF_DECODERS = {'decoder_attention_mask', 'tgt_key_padding_mask'}
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
    return statically_known_true(a == b) if torch.compiler.is_exporting() else a == b


def lengths_of(mask: Any, hides: bool = False) -> Tensor | None:
    """Number of tokens in each sequence of a padding mask (B, T), (B,); None for what is not one.

    True, or another number than 0, is a token; with `hides`, as in torch's masks, it is padding.
    """
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        return None
    mask = mask.bool() ^ hides
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ValueError("the mask hides tokens before others: pad sequences at their end, padding_side='right'")
    return mask.sum(dim=1)


def this_thread() -> int:
    return 0 if torch.compiler.is_compiling() else threading.get_ident()  # torch.compile cannot trace it


class GridRecord:
    """The grids of the current forward pass of a model, with their batch sizes.

    They come from convolutions, unfoldings, poolings, TokenNorm stems, replaced norms, and from pairs (H, W) among the
    arguments of blocks. Of two grids with the same number of tokens the later one counts, which is right in pyramids.
    When gradients reach the outputs of a block or of the model, the record of their forward pass returns, for
    activation checkpointing: another pass may have followed.
    """

    def __init__(self) -> None:
        self.grids: list[tuple[int, int, int | None]] = []  # height, width, batch size
        self.image: tuple[int, int] | None = None
        self.batch = 0
        self.image_sizes: Tensor | None = None
        self.places: dict[str, int] = {}  # of the model's positional arguments
        self.has_two = False  # sequences, of an encoder and of a decoder
        self.lengths: Tensor | None = None
        self.thread: int | None = None  # that is in the model's forward pass

    def watch(self, model: nn.Module, blocks: Sequence[nn.Module]) -> None:
        """Registers hooks that follow the forward passes of a model and of its blocks."""
        parameters = inspect.signature(model.forward).parameters
        is_positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.places = {name: i for i, name in enumerate(parameters) if parameters[name].kind in is_positional}
        self.has_two = self._has_two_sequences(model)
        model.register_forward_pre_hook(self._start, with_kwargs=True)
        model.register_forward_hook(self._end, always_call=True)
        for module in model.modules():
            if isinstance(module, WINDOWED):
                module.register_forward_hook(self._after_windows)
        for block in blocks:
            block.register_forward_pre_hook(self._before_block, with_kwargs=True)
            block.register_forward_hook(self._return_with)

    def _has_two_sequences(self, model: nn.Module) -> bool:
        """Whether a module of an encoder and a decoder holds norms of this record, or only some are in a decoder."""
        places, norms = [], []
        for name, part in model.named_modules():
            masks = MASKS.keys() & inspect.signature(part.forward).parameters
            places.append((f'{name}.' if name else '', masks))
            norms += [name] * (getattr(part, 'record', None) is self)
        around = [[masks for place, masks in places if norm.startswith(place)] for norm in norms]
        in_decoder = [any(masks & OF_DECODERS for masks in own) for own in around]
        both = any(masks & OF_DECODERS and masks - OF_DECODERS for own in around for masks in own)
        return both or 0 < sum(in_decoder) < len(norms)

    def note(self, height: int, width: int, batch: int | None = None) -> None:
        """Remembers a grid. A batch size of None matches any batch."""
        grid = height, width, batch
        # A pass that does not call the model itself forgets no grids. In an exported graph `in` would fix the sizes.
        if not torch.compiler.is_exporting() and grid in self.grids:
            self.grids.remove(grid)
        self.grids.append(grid)

    def valid(self, grid: tuple[int, int], batch: int) -> Tensor | None:
        """The part of each image's grid that is image and not padding, int (B, 2); None if all is, or if unknown.

        Sizes noted on the batch (`tokennorm.padding`) are scaled to the grid and rounded down.
        """
        if self.image_sizes is None or self.image is None or not self.is_current() or not _same(self.batch, batch):
            return None
        sides = zip(self.image_sizes.unbind(1), grid, self.image, strict=True)
        return torch.stack([sizes * tokens // pixels for sizes, tokens, pixels in sides], dim=1).clamp(min=1)

    def valid_sequence(self, num_prefix_tokens: int) -> Tensor | None:
        """The part of each sequence that the model's `attention_mask` does not hide, as a grid of one row, (B, 2)."""
        if self.lengths is None or not self.is_current():
            return None
        tokens = (self.lengths - num_prefix_tokens).clamp(min=1)
        return torch.stack([torch.ones_like(tokens), tokens], dim=1)

    def is_current(self) -> bool:
        """Whether the model itself is being called, not timm's `forward_features`, or activations are recomputed."""
        return self.thread is not None or torch._C._current_graph_task_id() != -1

    def _is_other_thread(self) -> bool:
        return bool((thread := this_thread()) and self.thread and self.thread != thread)

    def _end(self, model: nn.Module, args: Any, outputs: Any = None) -> None:
        if self._is_other_thread():
            return
        self.thread = None
        self._return_with(model, args, outputs)

    def _return_with(self, module: nn.Module, args: Any, outputs: Any) -> None:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        notes = self.grids[:], self.image, self.batch, self.image_sizes, self.lengths

        def restore(gradient: Tensor) -> None:
            self.grids, self.image, self.batch, self.image_sizes, self.lengths = notes[0][:], *notes[1:]

        for output in tree_leaves(outputs):
            if isinstance(output, Tensor) and output.grad_fn is not None:
                output.register_hook(restore)

    def _start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_other_thread():
            raise RuntimeError('replace_norms: another thread calls the model; give each its own, copy.deepcopy(model)')
        self.thread = this_thread()
        self.grids.clear()
        given = {name: args[i] for name, i in self.places.items() if i < len(args)} | kwargs
        masks = {name: found for name in MASKS if (found := lengths_of(given.get(name), MASKS[name])) is not None}
        if masks and self.has_two:
            raise ValueError(
                f'replace_norms: {type(model).__name__} has an encoder and a decoder, and a norm cannot tell whose '
                f'{" or ".join(masks)} it is: replace the norms of the encoder, or of the decoder, on its own'
            )
        lengths = list(masks.values())
        self.lengths = lengths[0] if lengths else None
        images = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim == 4]
        self.image = tuple(images[0].shape[-2:]) if images else None
        self.batch = images[0].shape[0] if images else 0
        self.image_sizes = image_sizes_of(images[0]) if images else None

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
