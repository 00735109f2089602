"""Checkpoint layouts: who names a backbone's parameters how, and what converts them to TokenNorm's keys."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokennorm.checkpoints.pvt import from_published_pvt, from_published_pvt_v2, without_class_token
from tokennorm.checkpoints.swin import fill_output_norms, rename_swin
from tokennorm.checkpoints.vit import fill_qkv_bias, rename_vit

StateDict = dict[str, Tensor]
Convert = Callable[[StateDict, nn.Module], StateDict]


@dataclass(frozen=True)
class Layout:
    """Names of parameters.

    Args:
        backbone: TokenNorm's class that has these parameters.
        author: Who uses these names.
        known_by: Keys that all such state dicts have.
        convert: (state dict of this layout, TokenNorm's model) -> state dict with TokenNorm's keys.
        fill: (that state dict, the model) -> the same with the published initial values of what the layout lacks.
    """

    backbone: str
    author: str
    known_by: tuple[str, ...]
    convert: Convert
    fill: Convert = lambda state_dict, model: state_dict

    def __str__(self) -> str:
        return f'{self.backbone} of {self.author}'


def recognise(state_dict: StateDict) -> Layout | None:
    """The layout of a backbone's state dict, or None."""
    return next((layout for layout in LAYOUTS if all(key in state_dict for key in layout.known_by)), None)


def layouts_of(model: nn.Module) -> list[Layout]:
    """The layouts that a TokenNorm backbone can load."""
    names = [kind.__name__ for kind in type(model).__mro__]
    return [layout for layout in LAYOUTS if layout.backbone in names]


def _fill_vit(state_dict: StateDict, model: nn.Module) -> StateDict:
    filled = fill_qkv_bias(state_dict)
    if not any(key.endswith(_REL_POS) for key in filled):  # a classifier: detectors initialize them to 0
        filled |= {key: torch.zeros_like(p) for key, p in model.state_dict().items() if key.endswith(_REL_POS)}
    return filled


_REL_POS = ('.rel_pos_h', '.rel_pos_w')
_BIAS_TABLE = 'relative_position_bias_table'
_PVT = (lambda state_dict, model: from_published_pvt(state_dict, model.out_type),)
_OWN_PVT = (
    lambda state_dict, model: without_class_token(state_dict) if model.out_type == 'featmap' else dict(state_dict),
)
_PVT_V2 = (lambda state_dict, model: from_published_pvt_v2(state_dict),)
_SWIN = (
    lambda state_dict, model: rename_swin(state_dict, model.out_type),
    lambda state_dict, model: fill_output_norms(state_dict) if model.out_type == 'featmap' else state_dict,
)
_VIT = (lambda state_dict, model: rename_vit(state_dict, model.out_type, model.l_dtn, model.pos_shape), _fill_vit)

LAYOUTS = (  # the first match counts: a layout known by more keys comes before one known by some of them
    Layout('PVT', 'its authors', ('pos_embed1',), *_PVT),
    Layout('PVT', 'mmdet', ('layers.0.1.0.pos_embed',), *_PVT),
    Layout('PVT', 'TokenNorm', ('stages.0.pos_embed',), *_OWN_PVT),
    Layout('PVTv2', 'its authors', ('block1.0.mlp.dwconv.dwconv.weight',), *_PVT_V2),
    Layout('PVTv2', 'timm', ('patch_embed.proj.weight', 'stages.0.blocks.0.mlp.dwconv.weight'), *_PVT_V2),
    Layout('PVTv2', 'mmdet', ('layers.0.1.0.ffn.layers.1.weight',), *_PVT_V2),
    Layout('PVTv2', 'TokenNorm', ('stages.0.blocks.0.mlp.dwconv.weight',), *_PVT_V2),
    Layout('Swin', 'its authors', (f'layers.0.blocks.0.attn.{_BIAS_TABLE}', 'layers.0.downsample.norm.weight'), *_SWIN),
    Layout('Swin', 'timm', (f'layers.0.blocks.0.attn.{_BIAS_TABLE}',), *_SWIN),
    Layout('Swin', 'mmdet or mmpretrain', (f'stages.0.blocks.0.attn.w_msa.{_BIAS_TABLE}',), *_SWIN),
    Layout('Swin', 'TokenNorm', (f'stages.0.blocks.0.attn.{_BIAS_TABLE}',), *_SWIN),
    Layout('ViT', 'the DTN authors', ('pos_embed', 'blocks.0.norm1.var_norm_weight'), *_VIT),
    Layout('ViT', 'mmpretrain', ('pos_embed', 'layers.0.ln1.weight'), *_VIT),
    Layout('ViT', 'DeiT, timm or TokenNorm', ('pos_embed', 'blocks.0.attn.qkv.weight'), *_VIT),
)
