"""The layouts of checkpoints: who names a backbone's parameters how, and what brings them to our keys."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokennorm.checkpoints.class_token import without_class_token
from tokennorm.checkpoints.published_dtn import from_published_dtn
from tokennorm.checkpoints.published_pvt import from_published_pvt
from tokennorm.checkpoints.published_pvt_v2 import from_published_pvt_v2
from tokennorm.checkpoints.published_swin import from_published_swin
from tokennorm.checkpoints.published_vit import from_published_vit

StateDict = dict[str, Tensor]
Convert = Callable[[StateDict, nn.Module], StateDict]


@dataclass(frozen=True)
class Layout:
    """Names of parameters.

    Args:
        backbone: Our class whose parameters they are.
        author: Whose names they are.
        known_by: Keys that all such state dicts have.
        convert: A state dict of it, and our model, to our keys.
    """

    backbone: str
    author: str
    known_by: tuple[str, ...]
    convert: Convert

    def __str__(self) -> str:
        return f'{self.backbone} of {self.author}'


def recognise(state_dict: StateDict) -> Layout | None:
    """The layout of a backbone's state dict, or None."""
    return next((layout for layout in LAYOUTS if all(key in state_dict for key in layout.known_by)), None)


def layouts_of(model: nn.Module) -> list[Layout]:
    """Those that a backbone of ours takes."""
    names = [kind.__name__ for kind in type(model).__mro__]
    return [layout for layout in LAYOUTS if layout.backbone in names]


def _pvt(state_dict: StateDict, model: nn.Module) -> StateDict:
    return from_published_dtn(from_published_pvt(state_dict, model.out_type))


def _own_pvt(state_dict: StateDict, model: nn.Module) -> StateDict:
    return without_class_token(state_dict) if model.out_type == 'featmap' else dict(state_dict)


def _pvt_v2(state_dict: StateDict, model: nn.Module) -> StateDict:
    return from_published_dtn(from_published_pvt_v2(state_dict))


def _swin(state_dict: StateDict, model: nn.Module) -> StateDict:
    return from_published_dtn(from_published_swin(state_dict, model.out_type))


def _vit(state_dict: StateDict, model: nn.Module) -> StateDict:
    converted = from_published_dtn(from_published_vit(state_dict, model.out_type, model.l_dtn, model.pos_shape))
    if not any(key.endswith(_REL_POS) for key in converted):  # a classifier's: those of a detector start with 0
        converted |= {key: torch.zeros_like(p) for key, p in model.state_dict().items() if key.endswith(_REL_POS)}
    return converted


_REL_POS = ('.rel_pos_h', '.rel_pos_w')
_BIAS_TABLE = 'relative_position_bias_table'

LAYOUTS = (  # the first that fits; what is known by more keys stands before what is known by some of them
    Layout('PVT', 'its authors', ('pos_embed1',), _pvt),
    Layout('PVT', 'mmdet', ('layers.0.1.0.pos_embed',), _pvt),
    Layout('PVT', 'ours', ('stages.0.pos_embed',), _own_pvt),
    Layout('PVTv2', 'its authors', ('block1.0.mlp.dwconv.dwconv.weight',), _pvt_v2),
    Layout('PVTv2', 'timm', ('patch_embed.proj.weight', 'stages.0.blocks.0.mlp.dwconv.weight'), _pvt_v2),
    Layout('PVTv2', 'mmdet', ('layers.0.1.0.ffn.layers.1.weight',), _pvt_v2),
    Layout('PVTv2', 'ours', ('stages.0.blocks.0.mlp.dwconv.weight',), _pvt_v2),
    Layout('Swin', 'its authors', (f'layers.0.blocks.0.attn.{_BIAS_TABLE}', 'layers.0.downsample.norm.weight'), _swin),
    Layout('Swin', 'timm', (f'layers.0.blocks.0.attn.{_BIAS_TABLE}',), _swin),
    Layout('Swin', 'mmdet or mmpretrain', (f'stages.0.blocks.0.attn.w_msa.{_BIAS_TABLE}',), _swin),
    Layout('Swin', 'ours', (f'stages.0.blocks.0.attn.{_BIAS_TABLE}',), _swin),
    Layout('ViT', 'the DTN authors', ('pos_embed', 'blocks.0.norm1.var_norm_weight'), _vit),
    Layout('ViT', 'mmpretrain', ('pos_embed', 'layers.0.ln1.weight'), _vit),
    Layout('ViT', 'DeiT, timm or ours', ('pos_embed', 'blocks.0.attn.qkv.weight'), _vit),
)
