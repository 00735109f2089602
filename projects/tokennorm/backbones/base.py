"""What the backbones share: checks of their arguments, freezing, loading, the depth of their parameters, and a
description of their maps."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from numbers import Integral, Real
from typing import Any, Literal

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from tokennorm.backbones.arch import Arch
from tokennorm.builder import build_norm, check_cfg
from tokennorm.checkpoints import load_from_init_cfg
from tokennorm.norms import PowerNorm, SwitchableNorm
from tokennorm.padding import valid_tokens

WITH_RUNNING_STATISTICS = (nn.modules.batchnorm._BatchNorm, SwitchableNorm, PowerNorm)


def in_autocast_dtype(forward: Callable[[Any, Tensor], tuple[Tensor, ...]]) -> Callable:
    """A backbone's forward that computes under autocast where its `autocast_dtype` says so, and returns float32."""

    @wraps(forward)
    def wrapped(self: Any, x: Tensor) -> tuple[Tensor, ...]:
        if self.autocast_dtype is None:
            return forward(self, x)
        with torch.autocast(x.device.type, dtype=getattr(torch, self.autocast_dtype)):
            outs = forward(self, x)
        return tuple(out.float() for out in outs)

    return wrapped


class Backbone(BaseModule):
    """The arguments, and what a training asks for, that all backbones have in common.

    A subclass ends its constructor with `_finish`, and has the `reset_parameters` and `_freeze_stages` that this calls.
    The checkpoints that it takes are in `tokennorm.checkpoints.layouts`.

    Args:
        num_stages: Stages, or what stands for them in a backbone without any.
        out_indices: Stages whose maps are returned; None is all.
        out_type: 'featmap' or `vector_type`.
        frozen_stages: Leading stages that are not trained; 0 freezes what stands before them, -1 nothing.
        norm_eval: Keep norms with running statistics, where there are any, in eval mode.
        drop_path_rate: Checked here alone.
        init_cfg: `dict(type='Pretrained', checkpoint=...)`, a file, an address or a work folder, or None.
            `allow_missing=[...]` in it: names of parameters, with `*` for anything, that may keep their start.
        autocast_dtype: What `in_autocast_dtype` computes in; None leaves it to the caller's autocast.

    Attributes:
        vector_type: A subclass's other `out_type`, which returns one vector an image.

    Raises:
        ValueError: for arguments out of range.
    """

    vector_type: str

    def __init__(
        self,
        num_stages: int,
        out_indices: Sequence[int] | None = None,
        out_type: str = 'featmap',
        frozen_stages: int = -1,
        norm_eval: bool = False,
        autocast_dtype: Literal['bfloat16', 'float16'] | None = None,
        drop_path_rate: float = 0.0,
        init_cfg: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        out_indices = range(num_stages) if out_indices is None else out_indices
        self._check_range('out_indices', out_indices, 0, num_stages - 1)
        self._check_range('drop_path_rate', [drop_path_rate], 0, 0.999, kind=Real)
        self._check_range('frozen_stages', [frozen_stages], -1, num_stages)
        if not out_indices:
            raise ValueError(f'{self._get_name()}: out_indices={out_indices} must be at least one stage')
        if out_type not in ('featmap', self.vector_type):
            raise ValueError(f"{self._get_name()}: out_type={out_type!r} must be 'featmap' or {self.vector_type!r}")
        if autocast_dtype not in (None, 'bfloat16', 'float16'):
            raise ValueError(
                f"{self._get_name()}: autocast_dtype={autocast_dtype!r} must be 'bfloat16', 'float16' or None"
            )
        self.out_indices = tuple(out_indices)
        self.out_type = out_type
        self.frozen_stages = frozen_stages
        self.norm_eval = norm_eval
        self.autocast_dtype = autocast_dtype

    def init_weights(self) -> None:
        """Loads the checkpoint of `init_cfg`, if there is one. mmengine calls it before training.

        Raises:
            RuntimeError: where the checkpoint's parameters are not this model's.
        """
        if self.init_cfg is not None:
            load_from_init_cfg(self, self.init_cfg)

    def train(self, mode: bool = True) -> 'Backbone':
        """As torch's; what is frozen stays in eval mode, and with `norm_eval` so do norms with running statistics."""
        super().train(mode)
        self._freeze_stages()
        if self.norm_eval:
            for module in self.modules():
                if isinstance(module, WITH_RUNNING_STATISTICS):
                    module.eval()
        return self

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """How deep a parameter lies, for learning rates that decay towards the image, in mmpretrain's words.

        Args:
            param_name: Its name in the model that the backbone is a part of.
            prefix: The backbone's name there, with a dot behind it.

        Returns:
            The depth, and the number of depths: 0 is what stands before the first block, then one for each block, and
            the last is all that lies behind the blocks: output norms, necks and heads.
        """
        num_layers = self._num_blocks() + 2
        depth = self._layer_depth(param_name.removeprefix(prefix)) if param_name.startswith(prefix) else None
        return num_layers - 1 if depth is None else depth, num_layers

    def _num_blocks(self) -> int:
        raise NotImplementedError

    def _layer_depth(self, name: str) -> int | None:
        """The depth of a parameter of this name in the backbone; None is the last."""
        raise NotImplementedError

    def _freeze_stages(self) -> None:
        """Takes the gradient and the training mode from what `frozen_stages` says."""
        raise NotImplementedError

    def _finish(self, parts: nn.ModuleList) -> None:
        """The end of a constructor: initial numbers, and no gradient where none can come. `out_indices` counts `parts`,
        the stages or blocks."""
        if self.out_type == 'featmap':
            # Unused, so that a checkpoint fits, and without a gradient, which distributed training would wait for.
            parts[max(self.out_indices) + 1 :].requires_grad_(False)
        self.reset_parameters()
        self._freeze_stages()

    def _height_and_width(self, name: str, value: int | Sequence[int]) -> tuple[int, int]:
        """Both, of an argument of that name which is one side, or height and width."""
        sides = (value,) * 2 if isinstance(value, int) else value
        self._check_range(name, sides, 1)
        if len(sides) != 2:
            raise ValueError(f'{self._get_name()}: {name}={value} must be one side or (height, width)')
        return tuple(sides)

    def _check_range(
        self, name: str, values: Sequence[float], low: float, high: float = math.inf, kind: type = Integral
    ) -> None:
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(f'{self._get_name()}: {name}={values!r} must be a list of numbers in {low} to {high}')
        if not all(isinstance(value, kind) for value in values):
            words = 'whole numbers' if kind is Integral else 'a number'
            raise ValueError(f'{self._get_name()}: {name}={tuple(values)} must be {words} in {low} to {high}')
        if not all(low <= value <= high for value in values):
            raise ValueError(f'{self._get_name()}: {name}={tuple(values)} must lie in {low} to {high}')


class Pyramid(Backbone):
    """A backbone of up to four `stages`, of strides 4, 8, 16 and 32, each of which begins with its `patch_embed`.

    A subclass fills `stages` and ends its constructor with `_finish`.

    Args:
        arch: What `resolve_arch` returns.
        kwargs: The other arguments of `Backbone`.

    Raises:
        ValueError: for arguments out of range.
    """

    def __init__(self, arch: Arch, **kwargs: Any) -> None:
        super().__init__(num_stages=len(arch['depths']), **kwargs)
        self.embed_dims = tuple(arch['embed_dims'])
        self.stages = nn.ModuleList()

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        """Channels (`num_chs`) and stride (`reduction`, in pixels) of each entry of the output, in timm's words."""
        returned = sorted(set(self.out_indices)) if self.out_type == 'featmap' else [len(self.embed_dims) - 1]
        return [dict(num_chs=self.embed_dims[i], reduction=4 * 2**i, module=f'stages.{i}') for i in returned]

    def valid_tokens(self, images: Tensor) -> list[Tensor | None]:
        """For each stage, height and width in tokens of what is image, (B, 2); None where all is."""
        return [valid_tokens(images, 4 * 2**i) for i in range(len(self.stages))]

    def _num_blocks(self) -> int:
        return sum(len(stage.blocks) for stage in self.stages)

    def _layer_depth(self, name: str) -> int | None:
        """A stage's embeddings lie as deep as the block before them, and so does the norm behind it."""
        match = re.match(r'stages\.(\d+)\.(\w+)\.?(\d*)', name)
        if match is None:
            return None
        stage, part, block = int(match[1]), match[2], match[3]
        before = sum(len(stage.blocks) for stage in self.stages[:stage])
        if part == 'blocks':
            return before + int(block) + 1
        return before + len(self.stages[stage].blocks) if part == 'norm' else before

    def _token_norms(
        self,
        token_norm_cfg: Mapping[str, Any] | None,
        norm_cfg: Mapping[str, Any],
        num_heads: Sequence[int],
        token_norm_stages: int,
    ) -> list[Callable[[], nn.Module]]:
        """For each stage, what builds the norms inside its blocks.

        The first `token_norm_stages` stages have `token_norm_cfg`, with the DTN paper's pools of 4, 2, 1 and 1 (B.1)
        unless its `pool` says otherwise; the others have `norm_cfg`.
        """
        num_stages = len(self.embed_dims)
        self._check_range('token_norm_stages', [token_norm_stages], 0, num_stages)
        check_cfg(norm_cfg, 'norm_cfg')
        check_cfg(token_norm_cfg or norm_cfg, 'token_norm_cfg')
        token_norm_cfg = dict(token_norm_cfg or norm_cfg)
        pools = token_norm_cfg.pop('pool', (4, 2, 1, 1)[:num_stages])
        pools = [pools] * num_stages if isinstance(pools, int) else pools
        if not isinstance(pools, list | tuple) or len(pools) != num_stages:
            raise ValueError(
                f'{self._get_name()}: pool={pools!r} must be a whole number of tokens, '
                f'or {num_stages}, one for each stage'
            )
        return [
            partial(
                build_norm,
                token_norm_cfg if i < token_norm_stages else norm_cfg,
                self.embed_dims[i],
                num_heads[i],
                role='token_norm_cfg',
                pool=pools[i],
            )
            for i in range(num_stages)
        ]

    def _freeze_stages(self) -> None:
        frozen = [self.stages[0].patch_embed] if self.frozen_stages == 0 else self.stages[: max(self.frozen_stages, 0)]
        for module in frozen:
            module.eval().requires_grad_(False)
