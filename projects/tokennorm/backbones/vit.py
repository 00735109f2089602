"""Vision Transformer (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020; Touvron et al., "Training
data-efficient image transformers", 2021), with Dynamic Token Normalization and Dual PatchNorm as options.

With `token_norm_cfg=None` and `stem_cfg=None` the classifier (`out_type='cls_token'`, without its linear head) is DeiT,
and timm's ViT. With DTN in the first `l_dtn` blocks, the class token, which has no position in a grid, joins after them
(DTN paper, A.1). Detectors (`out_type='featmap'`) have no class token, and most blocks attend within windows (Li et
al., "Exploring Plain Vision Transformer Backbones for Object Detection", ViTDet, 2022). DTN's statistics are always
computed over the whole grid: norms come before the windows. Relative positions in the attention, decomposed into rows
and columns (Li et al., "MViTv2", 2021), follow ViTDet's published code.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from tokennorm.backbones.base import Backbone, resolve_arch
from tokennorm.backbones.vit_attention import REL_POS, Attention, WindowAttention
from tokennorm.checkpoints.layouts import Converted, StateDict
from tokennorm.checkpoints.vit import VIT_LAYOUTS, from_published_vit
from tokennorm.images.padding import ImageArea, valid_tokens
from tokennorm.layers import build_stem
from tokennorm.layers.block import Block, Mlp, drop_path_rates
from tokennorm.layers.building import build_norm, eps_of_replaced
from tokennorm.layers.patch_embed import pair_of
from tokennorm.layers.positions import positions_of, prepend_token
from tokennorm.registry import MODELS

# The starred archs are the DTN paper's (Table 1). They have more heads, in square numbers.
ARCHS: dict[str, dict[str, float]] = {
    'tiny': dict(embed_dims=192, depths=12, num_heads=3, mlp_ratios=4),
    'small': dict(embed_dims=384, depths=12, num_heads=6, mlp_ratios=4),
    'base': dict(embed_dims=768, depths=12, num_heads=12, mlp_ratios=4),
    'tiny*': dict(embed_dims=192, depths=12, num_heads=4, mlp_ratios=4),
    'small*': dict(embed_dims=432, depths=12, num_heads=9, mlp_ratios=4),
    'base*': dict(embed_dims=768, depths=12, num_heads=16, mlp_ratios=4),
}


@MODELS.register_module()
class ViT(Backbone):
    """Vision Transformer for detectors and classifiers.

    `Backbone` documents the arguments that are not listed here.

    Args:
        arch: 'tiny', 'small', 'base', the DTN paper's 'tiny*', 'small*', 'base*', or a dict of `embed_dims`,
            `depths`, `num_heads` and `mlp_ratios`, each one number. `depth` and `mlp_ratio` are taken as well.
        in_channels: Channels of the image.
        patch_size: Side of a patch and stride of the feature maps, in pixels. A classifier's may be (height, width).
        token_norm_cfg: The norms inside the first `l_dtn` blocks, e.g. `dict(type='DTN')`. None is `norm_cfg`.
        l_dtn: Leading blocks that use `token_norm_cfg`; the class token joins after them. None is 10 (DTN paper, A.1);
            without `token_norm_cfg` it is 0, as in DeiT.
        stem_cfg: The patch embedding, e.g. `dict(type='DualPatchEmbed')`. None is the plain one, without a norm.
        norm_cfg: All other norms, except those of the stem, which `stem_cfg` may set. None is as published: LayerNorm
            with eps 1e-6. (The DTN authors' classifiers use 1e-5.)
        norm_placement: As in `Block`.
        pretrain_img_size: Side, or height and width, of the images that the position embedding is made for, in pixels.
            For other images it is resized, bicubic with antialiasing as in timm.
        window_size: Side of the attention's windows, in tokens, for 'featmap'.
        global_indices: Blocks that attend to the whole grid, for 'featmap'. None is the last block of each quarter, as
            in ViTDet. All blocks of a classifier do.
        rel_pos: Relative positions in the attention, as in ViTDet, for 'featmap': side, or height and width, in tokens,
            of the grid that the tables of blocks with global attention are made for (64 in ViTDet), and from which
            they are resized. Initially 0, also if the checkpoint has none. None turns relative positions off.
        out_indices: Blocks whose feature maps are returned, for 'featmap'. None is the last.
        out_type: 'featmap' returns the feature maps (B, C, H, W) of `out_indices`, all of one stride and, as in ViTDet,
            without a norm, for a `SimpleFeaturePyramid`. 'cls_token' returns the class token (B, C).
        frozen_stages: As in `Backbone`, in blocks. All blocks of a classifier include the norm after them.
        with_cp: As in `Pyramid`.
        init_cfg: Loads checkpoints in the layout of DeiT, the DTN authors, timm, mmpretrain or TokenNorm. Position
            embeddings of another image size are resized.
    """

    vector_type = 'cls_token'
    layouts = VIT_LAYOUTS
    adds_positions = True
    pos_mode = 'bicubic'
    image_area: ImageArea | None = None  # of `mask_padding`: the positions are those of each image
    block_type: type[Block] = Block

    def __init__(
        self,
        arch: str | Mapping[str, float] = 'tiny',
        in_channels: int = 3,
        patch_size: int | tuple[int, int] = 16,
        token_norm_cfg: Mapping[str, Any] | None = None,
        l_dtn: int | None = None,
        stem_cfg: Mapping[str, Any] | None = None,
        norm_cfg: Mapping[str, Any] | None = None,
        norm_placement: Literal['pre', 'peri'] = 'pre',
        pretrain_img_size: int | tuple[int, int] = 224,
        window_size: int = 14,
        global_indices: Sequence[int] | None = None,
        rel_pos: int | tuple[int, int] | None = None,
        out_indices: Sequence[int] | None = None,
        out_type: Literal['featmap', 'cls_token'] = 'featmap',
        with_cp: bool = False,
        drop_path_rate: float = 0.1,
        **kwargs: Any,
    ) -> None:
        if isinstance(arch, Mapping):
            arch = {dict(depth='depths', mlp_ratio='mlp_ratios').get(key, key): value for key, value in arch.items()}
        arch = resolve_arch('ViT', ARCHS, arch, per_stage=False)
        depth, dims, num_heads = arch['depths'], arch['embed_dims'], arch['num_heads']
        out_indices = [depth - 1] if out_indices is None else out_indices
        super().__init__(depth, out_indices, out_type, drop_path_rate=drop_path_rate, **kwargs)
        if l_dtn is None:
            l_dtn = min(10, depth) if token_norm_cfg else 0
        if global_indices is None:
            global_indices = [-(-depth * quarter // 4) - 1 for quarter in (1, 2, 3, 4)]
        sides = pair_of('ViT', patch_size)
        patch_size = sides[0] if sides[0] == sides[1] else sides
        if out_type == 'featmap' and not isinstance(patch_size, int):
            raise ValueError(f"ViT: patch_size={patch_size} must be one side for out_type='featmap'")
        self._check_range('window_size', [window_size], 1)
        self._check_range('global_indices', global_indices, 0, depth - 1)
        self._check_range('l_dtn', [l_dtn], 0, depth)
        if out_type == 'cls_token' and l_dtn == depth:
            raise ValueError(
                f"ViT: out_type='cls_token' needs l_dtn={l_dtn} below the depth, for the class token to join"
            )
        self.embed_dims = dims
        self.patch_size = patch_size
        self.l_dtn = l_dtn
        height, width = pair_of('ViT', pretrain_img_size, 'pretrain_img_size')
        self.pos_shape = (-(-height // sides[0]), -(-width // sides[1]))

        norm_cfg = norm_cfg or dict(type='LN', eps=1e-6)
        eps = eps_of_replaced(token_norm_cfg, norm_cfg, dims)
        token_norm = partial(build_norm, token_norm_cfg or norm_cfg, dims, num_heads, role='token_norm_cfg', **eps)
        other_norm = partial(build_norm, norm_cfg, dims, num_heads)
        windows = set(range(depth)) - set(global_indices) if out_type == 'featmap' else set()
        if rel_pos is not None:
            rel_pos = pair_of('ViT', rel_pos, 'rel_pos')
            if out_type == 'cls_token':
                raise ValueError(f"ViT: rel_pos={rel_pos} must be None for out_type='cls_token'")
        attentions = [
            self._attention(i, num_heads, window_size if i in windows else None, rel_pos) for i in range(depth)
        ]
        self.patch_embed = build_stem(stem_cfg, in_channels=in_channels, embed_dims=dims, patch_size=patch_size)
        has_cls_row = out_type == 'cls_token' and l_dtn == 0
        self.pos_embed = nn.Parameter(torch.empty(1, has_cls_row + self.pos_shape[0] * self.pos_shape[1], dims))
        self.blocks = nn.ModuleList(
            self.block_type(
                token_norm if i < l_dtn else other_norm,
                attn=attn,
                mlp=Mlp(dims, arch['mlp_ratios']),
                drop_path=drop_path,
                norm_placement=norm_placement,
                with_cp=with_cp,
            )
            for i, (attn, drop_path) in enumerate(zip(attentions, drop_path_rates(drop_path_rate, depth), strict=True))
        )
        if out_type == 'cls_token':
            self.cls_token = nn.Parameter(torch.empty(1, 1, dims))
            self.norm = build_norm(norm_cfg, dims)
        self._finish(self.blocks)

    def _attention(self, i: int, num_heads: int, window: int | None, rel_pos: tuple[int, int] | None) -> Attention:
        """The attention of block i, within windows of a side in tokens, or global."""
        if window is None:
            return Attention(self.embed_dims, num_heads, rel_pos)
        return WindowAttention(self.embed_dims, num_heads, window, rel_pos is not None)

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        """Channels (`num_chs`) and stride (`reduction`, in pixels) of each output, with timm's keys."""
        returned = sorted(set(self.out_indices)) if self.out_type == 'featmap' else [len(self.blocks) - 1]
        return [dict(num_chs=self.embed_dims, reduction=self.patch_size, module=f'blocks.{i}') for i in returned]

    def from_published(self, state_dict: StateDict) -> Converted:
        """Converts a state dict. Relative positions, which classifiers lack, are initialized to 0 as in detectors."""
        converted = from_published_vit(state_dict, self.out_type, self.l_dtn, self.pos_shape)
        if not any(key.endswith(REL_POS) for key in converted):
            zeros = {key: torch.zeros_like(p) for key, p in self.state_dict().items() if key.endswith(REL_POS)}
            converted.update(zeros)
            converted.added += zeros
        return converted

    def _outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, in_channels, H, W) -> feature maps of `out_indices`, (B, C, H_i, W_i), or the class token (B, C)."""
        valid = valid_tokens(x, self.patch_size)
        x, args = self._add_positions(self.patch_embed(x), valid)
        outs = []
        for i, block in enumerate(self.blocks):
            if self.out_type == 'cls_token' and i == self.l_dtn:
                x, valid = prepend_token(self._class_token(), x), None
            x = block(x, valid, *args[i])
            if self.out_type == 'featmap' and i in self.out_indices:
                outs.append(rearrange(x, 'b h w c -> b c h w'))
                if i == max(self.out_indices):
                    return tuple(outs)
        return (self.norm(x)[:, 0, 0],)

    def _add_positions(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Sequence[tuple[Tensor, ...]]]:
        """Tokens (B, H, W, C) of the stem -> of the first block, and the further arguments of each block."""
        extents = None if self.image_area is None else self.image_area.extents(*x.shape[1:3])
        x = x + positions_of(self, x, extents)
        if getattr(self.patch_embed, 'norm_after_positions', False):
            x = self.patch_embed.norm(x, valid)
        return x, [()] * len(self.blocks)

    def _class_token(self) -> Tensor:
        """The class token (1, 1, C). It has a position embedding only if it joins before the first block."""
        return self.cls_token if self.l_dtn else self.cls_token + self.pos_embed[:, :1]

    def _layer_depth(self, name: str) -> int | None:
        """The class token has the depth of the block after which it joins."""
        if name == 'cls_token':
            return self.l_dtn
        if match := re.match(r'blocks\.(\d+)\.', name):
            return int(match[1]) + 1
        return 0 if name.startswith(('patch_embed.', 'pos_embed')) else None

    def _freeze_stages(self) -> None:
        if self.frozen_stages < 0:
            return
        for module in [self.patch_embed, *self.blocks[: self.frozen_stages]]:
            module.eval().requires_grad_(False)
        self.pos_embed.requires_grad_(False)
        if self.out_type == 'cls_token' and self.frozen_stages == len(self.blocks):
            self.norm.requires_grad_(False)
        if self.out_type == 'cls_token' and self.l_dtn <= self.frozen_stages:
            self.cls_token.requires_grad_(False)
