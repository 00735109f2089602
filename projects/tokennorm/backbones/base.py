"""Base classes of the backbones: sizes, checks of arguments, freezing, loading, layer depths and outputs."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, Literal

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from tokennorm.base.messages import did_you_mean
from tokennorm.checkpoints.layouts import Layout
from tokennorm.checkpoints.loading import load_from_init_cfg
from tokennorm.images.padding import valid_tokens
from tokennorm.layers.block import Block, drop_path_rates
from tokennorm.layers.building import arguments_of, build_norm, check_cfg, eps_of_replaced
from tokennorm.norms import PowerNorm, SwitchableNorm

MAX_STAGES = 4
Arch = Mapping[str, Any]
POSITIONS_AND_TOKENS = ('pos_embed', 'cls_token', 'relative_position_bias_table')
ELSEWHERE = dict(  # arguments of mmdet's and mmpretrain's backbones, and what takes their place
    pretrained="use init_cfg=dict(type='Pretrained', checkpoint=FILE)",
    convert_weights='leave it out: init_cfg finds the names that a file has',
    use_abs_pos_embed='leave it out: PVT and ViT always have absolute positions, Swin and PVTv2 never',
    pretrain_img_size='leave it out: this backbone has no absolute positions',
    patch_norm='leave it out: the stems of PVT, PVTv2 and Swin always have a norm; stem_cfg chooses another stem',
    strides='leave it out: the strides are 4, 8, 16 and 32; out_indices chooses among them',
    **dict.fromkeys(
        ('embed_dims', 'depths', 'num_layers', 'num_stages', 'num_heads', 'mlp_ratio', 'mlp_ratios', 'sr_ratios'),
        'it is part of arch, a name or a dict',
    ),
)
WITH_RUNNING_STATISTICS = (nn.modules.batchnorm._BatchNorm, SwitchableNorm, PowerNorm)


def resolve_arch(
    owner: str, archs: Mapping[str, Arch], arch: str | Arch, per_stage: bool = True, **optional: Any
) -> dict[str, Any]:
    """Returns the row of `archs` with the name `arch`, or a given dict with the keys of a row, checked.

    With `per_stage` each entry is a list with one number per stage, otherwise one number. `optional` are entries that a
    row may leave out, with their defaults; they are not checked.
    """
    if isinstance(arch, str) and arch in archs:
        return optional | dict(archs[arch])
    if not isinstance(arch, Mapping):
        meant = did_you_mean(arch, archs) if isinstance(arch, str) else ''
        raise ValueError(f'{owner}: arch={arch!r} must be one of {", ".join(archs)} or a dict{meant}')
    expected = set(next(iter(archs.values()))) - set(optional)
    if set(arch) - set(optional) != expected:
        raise ValueError(f'{owner}: arch has the keys {sorted(arch)}, expected {sorted(expected)}')
    lists = {key: arch[key] if per_stage else [arch[key]] for key in sorted(expected)}
    each = f'a list with as many entries as depths, 1 to {MAX_STAGES}, each ' if per_stage else ''
    for key, values in lists.items():
        number, text = (Real, 'a positive number') if key == 'mlp_ratios' else (int, 'an integer of at least 1')
        is_list = isinstance(values, list | tuple) and 1 <= len(values) == len(lists['depths']) <= MAX_STAGES
        if not is_list or not all(isinstance(v, number) and 0 < v < math.inf for v in values):
            raise ValueError(f'{owner}: arch: {key}={arch[key]!r} must be {each}{text}')
    for dims, num_heads in zip(lists['embed_dims'], lists['num_heads'], strict=True):
        if dims % num_heads:
            raise ValueError(f'{owner}: num_heads={num_heads} must divide embed_dims={dims}')
    return optional | dict(arch)


class Backbone(BaseModule):
    """Base class of all backbones: their common arguments, and what training needs.

    A subclass ends its constructor with `_finish`. It has

    - `_outputs(images)`: the feature maps or vectors of images;
    - `from_published(state_dict)`: a state dict of one of its `layouts` with its own keys, a `Converted`;
    - `_layer_depth(name)`: the depth of the parameter of this name; None is the last depth;
    - `_freeze_stages()`: no gradients and eval mode for the stages that `frozen_stages` selects.

    Args:
        num_stages: Stages, or blocks in a backbone without stages.
        out_indices: Stages whose feature maps are returned, for 'featmap'. None is all.
        out_type: 'featmap' returns the feature maps (B, C, H, W) of `out_indices`; `vector_type` returns one vector per
            image.
        frozen_stages: Leading stages that are not trained, together with everything before them. 0 freezes only the
            first patch embedding, -1 nothing, the number of stages also a norm after them.
        norm_eval: Keep norms with running statistics (BN, SN, PowerNorm) in eval mode during training.
        autocast_dtype: 'bfloat16' or 'float16' computes the backbone under autocast and returns float32, which mmcv's
            focal loss and RoIAlign need. 'float16' needs loss scaling: `optim_wrapper=dict(type='AmpOptimWrapper',
            dtype='float32')` adds it without autocast. None leaves autocast to the caller.
        drop_path_rate: Stochastic depth rate of the last block, growing linearly from 0. The subclass applies it.
        init_cfg: `dict(type='Pretrained', checkpoint=...)` loads a file, a URL or a work directory in one of the
            layouts. `allow_missing=[...]` in it lists names of parameters, with `*` as wildcard, that may keep their
            initialization. None loads nothing.

    Attributes:
        vector_type: The subclass's other `out_type`.
        layouts: Checkpoint layouts that the subclass loads. The first match counts: a layout known by more keys comes
            before one known by some of them.

    Raises:
        ValueError: for arguments that are unknown, out of range or contradict each other, also of a subclass.
    """

    vector_type: str
    layouts: Sequence[Layout]
    adds_positions = False  # to the tokens of the stem, which may have a norm after them

    def __init__(
        self,
        num_stages: int,
        /,
        out_indices: Sequence[int] | None = None,
        out_type: str = 'featmap',
        frozen_stages: int = -1,
        norm_eval: bool = False,
        autocast_dtype: Literal['bfloat16', 'float16'] | None = None,
        drop_path_rate: float = 0.0,
        init_cfg: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        if kwargs:  # those that no subclass takes either
            every = arguments_of(type(self)).values()
            name, known = next(iter(kwargs)), [p.name for p in every if p.kind is p.POSITIONAL_OR_KEYWORD]
            way_out = f': {ELSEWHERE[name]}' if name in ELSEWHERE else did_you_mean(name, known)
            raise ValueError(
                f'{self._get_name()} has no argument {name!r}{way_out}; it has {", ".join(known)}. In a config with a '
                'base, _delete_=True drops the arguments of the base'
            )
        out_indices = range(num_stages) if out_indices is None else out_indices
        self._check_range('out_indices', out_indices, 0, num_stages - 1)
        self._check_range('drop_path_rate', [drop_path_rate], 0, 0.999, number=Real)
        self._check_range('frozen_stages', [frozen_stages], -1, num_stages)
        if not out_indices:
            raise ValueError(f'{self._get_name()}: out_indices={out_indices} must be at least one stage')
        if out_type not in ('featmap', self.vector_type):
            raise ValueError(f"{self._get_name()}: out_type={out_type!r} must be 'featmap' or {self.vector_type!r}")
        if autocast_dtype not in (None, 'bfloat16', 'float16'):
            raise ValueError(f"{self._get_name()}: autocast_dtype={autocast_dtype!r} must be 'bfloat16' or 'float16'")
        self.out_indices = tuple(out_indices)
        self.out_type = out_type
        self.frozen_stages = frozen_stages
        self.norm_eval = norm_eval
        self.autocast_dtype = autocast_dtype

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B, C, H, W) -> what the subclass's `_outputs` returns; float32 if `autocast_dtype` is set.

        The results are contiguous: mmcv's RoIAlign reads any memory format as if it were, without an error.
        """
        if self.autocast_dtype is None:
            return tuple(out.contiguous() for out in self._outputs(x))
        with torch.autocast(x.device.type, dtype=getattr(torch, self.autocast_dtype)):
            outs = self._outputs(x)
        return tuple(out.float().contiguous() for out in outs)

    def reset_parameters(self) -> None:
        """Published initialization: linear layers, tokens and tables of positions truncated normal, std 0.02."""
        for module in [*self.modules()][1:] + [self]:
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            for name in POSITIONS_AND_TOKENS:
                if isinstance(parameter := getattr(module, name, None), nn.Parameter):
                    nn.init.trunc_normal_(parameter, std=0.02)

    def init_weights(self) -> None:
        """Loads the checkpoint of `init_cfg`, if any. mmengine calls it before training."""
        if self.init_cfg is not None:
            load_from_init_cfg(self, self.init_cfg)

    def train(self, mode: bool = True) -> 'Backbone':
        """Sets the training mode. Frozen stages stay in eval mode, and so do norms that `norm_eval` selects."""
        super().train(mode)
        self._freeze_stages()
        if self.norm_eval:
            for module in self.modules():
                if isinstance(module, WITH_RUNNING_STATISTICS):
                    module.eval()
        return self

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Returns the depth of a parameter, and the number of depths (mmpretrain's interface, for layer decay).

        Depth 0 is everything before the first block, the last depth everything after the blocks: output norms, necks
        and heads. `prefix` is the backbone's name in the model, with a trailing dot.
        """
        num_layers = self._num_blocks() + 2
        depth = self._layer_depth(param_name.removeprefix(prefix)) if param_name.startswith(prefix) else None
        return num_layers - 1 if depth is None else depth, num_layers

    def _num_blocks(self) -> int:
        return sum(isinstance(module, Block) for module in self.modules())

    def _finish(self, parts: nn.ModuleList) -> None:
        """Ends a constructor: initializes parameters, and freezes the stages or blocks after the last output."""
        if not self.adds_positions and any(getattr(module, 'norm_after_positions', 0) for module in self.modules()):
            raise ValueError(
                f"{self._get_name()}: stem_cfg: norms='post_pos_embed' must be another: only ViT supports it"
            )
        if self.out_type == 'featmap':
            # They stay, so that checkpoints fit. They get no gradient, which distributed training would wait for.
            parts[max(self.out_indices) + 1 :].requires_grad_(False)
        self.reset_parameters()
        self._freeze_stages()

    def _check_range(
        self, name: str, values: Sequence[float], low: float, high: float = math.inf, number: type = Integral
    ) -> None:
        is_list = isinstance(values, Sequence) and not isinstance(values, str)
        if not is_list or not all(isinstance(value, number) and low <= value <= high for value in values):
            numbers = 'integers' if number is Integral else 'a number'
            raise ValueError(f'{self._get_name()}: {name}={values!r} must be {numbers} in {low} to {high}')


class Pyramid(Backbone):
    """Base class of backbones with up to four `stages`, of strides 4, 8, 16 and 32, which begin with a `patch_embed`.

    A subclass fills `stages` and ends its constructor with `_finish`. All subclasses take these arguments:

    - `arch`: The name of a size, or a dict with one list per entry, one number per stage.
    - `in_channels`: Channels of the image.
    - `token_norm_cfg`: The norms in the blocks of the first `token_norm_stages` stages, e.g. `dict(type='DTN')`. DTN
      pools its inter-token statistics over 4, 2, 1 and 1 tokens in the four stages (DTN paper, B.1). A `pool` in this
      dict, one number or one per stage, takes precedence. None is `norm_cfg`.
    - `token_norm_stages`: Leading stages that use `token_norm_cfg`.
    - `stem_cfg`: The first patch embedding, e.g. `dict(type='DualPatchEmbed')`. None is the plain one.
    - `norm_cfg`: All other norms, except the first norm of Dual PatchNorm. None is as published.
    - `norm_placement`: As in `Block`.
    - `with_cp`: Activation checkpointing: recompute blocks in the backward pass, to save memory.

    Here `arch` is the result of `resolve_arch`, and `norm_cfg` is not None.
    """

    most_token_norm_stages = MAX_STAGES  # where `token_norm_stages` is None

    def __init__(
        self,
        arch: Arch,
        norm_cfg: Mapping[str, Any],
        token_norm_stages: int | None,
        token_norm_cfg: Mapping[str, Any] | None = None,
        norm_placement: Literal['pre', 'peri'] = 'pre',
        with_cp: bool = False,
        drop_path_rate: float = 0.1,
        **kwargs: Any,
    ) -> None:
        num_stages = len(arch['depths'])
        super().__init__(num_stages, drop_path_rate=drop_path_rate, **kwargs)
        if token_norm_stages is None:
            token_norm_stages = min(self.most_token_norm_stages, num_stages)
        self._check_range('token_norm_stages', [token_norm_stages], 0, num_stages)
        self.token_norm_stages = token_norm_stages
        check_cfg(norm_cfg, 'norm_cfg')
        check_cfg(token_norm_cfg or norm_cfg, 'token_norm_cfg')
        self.embed_dims = tuple(arch['embed_dims'])
        self.stages = nn.ModuleList()
        eps = eps_of_replaced(token_norm_cfg, norm_cfg, self.embed_dims[0])
        token_norm_cfg = dict(token_norm_cfg or norm_cfg)
        pools = token_norm_cfg.pop('pool', (4, 2, 1, 1)[:num_stages])
        pools = [pools] * num_stages if isinstance(pools, int) else pools
        if not isinstance(pools, list | tuple) or len(pools) != num_stages:
            raise ValueError(f'{self._get_name()}: pool={pools!r} must be one integer, or {num_stages}, in tokens')
        cfgs = [token_norm_cfg] * token_norm_stages + [norm_cfg] * (num_stages - token_norm_stages)
        self._norms = [
            partial(build_norm, cfg, dims, num_heads, role='token_norm_cfg', pool=pool, **eps)
            for cfg, dims, num_heads, pool in zip(cfgs, self.embed_dims, arch['num_heads'], pools, strict=True)
        ]
        rates = drop_path_rates(drop_path_rate, sum(arch['depths']))
        self._rates = [[next(rates) for _ in range(depth)] for depth in arch['depths']]
        self._norm_placement = norm_placement
        self._with_cp = with_cp

    def _blocks(self, stage: int, attn: Callable[[], nn.Module], mlp: Callable[[], nn.Module]) -> nn.ModuleList:
        """Returns the blocks of a stage. `attn` and `mlp` are called once for each block."""
        norm, placement, with_cp = self._norms[stage], self._norm_placement, self._with_cp
        return nn.ModuleList(Block(norm, attn(), mlp(), rate, placement, with_cp) for rate in self._rates[stage])

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        """Channels (`num_chs`) and stride (`reduction`, in pixels) of each output, with timm's keys."""
        returned = sorted(set(self.out_indices)) if self.out_type == 'featmap' else [len(self.embed_dims) - 1]
        return [dict(num_chs=self.embed_dims[i], reduction=4 * 2**i, module=f'stages.{i}') for i in returned]

    def _outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, in_channels, H, W) -> feature maps of `out_indices`, (B, C_i, H_i, W_i), or one vector (B, C)."""
        outs = []
        valid = [valid_tokens(x, 4 * 2**i) for i in range(len(self.stages))]
        for i, stage in enumerate(self.stages):
            x = stage(x, valid[i])
            if self.out_type == 'featmap' and i in self.out_indices:
                outs.append(self._feature_map(stage, x, valid[i]))
                if i == max(self.out_indices):
                    return tuple(outs)
        return (self._vector(x),)

    def _feature_map(self, stage: nn.Module, x: Tensor, valid: Tensor | None) -> Tensor:
        """What a stage returns -> its feature map (B, C, H, W)."""
        return x

    def _vector(self, x: Tensor) -> Tensor:
        """What the last stage returns -> one vector per image, (B, C)."""
        return x.mean(dim=(2, 3))

    def _layer_depth(self, name: str) -> int | None:
        """The embeddings of a stage have the depth of the block before them, and its norm that of its last block."""
        match = re.match(r'stages\.(\d+)\.(\w+)\.?(\d*)', name)
        if match is None:
            return None
        stage, part, block = int(match[1]), match[2], match[3]
        before = sum(len(stage.blocks) for stage in self.stages[:stage])
        if part == 'blocks':
            return before + int(block) + 1
        return before + len(self.stages[stage].blocks) if part == 'norm' else before

    def _freeze_stages(self) -> None:
        frozen = [self.stages[0].patch_embed] if self.frozen_stages == 0 else self.stages[: max(self.frozen_stages, 0)]
        if self.frozen_stages == len(self.stages) and hasattr(self, 'norm'):  # of a class token
            frozen = [*frozen, self.norm]
        for module in frozen:
            module.eval().requires_grad_(False)
