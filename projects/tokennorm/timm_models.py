"""TokenNorm's classifiers as entry points of timm: import this module, then `timm.create_model('pvt_tiny_dtn')`.

The names are those of the ImageNet configs with underscores: `pvt_tiny_dtn`, `pvtv2_b2_dpn`, `swin_tiny_dtn_dpn`,
`vit_small_star_dtn` and so on. Models without DTN and Dual PatchNorm are timm's own.
"""

import sys
from collections.abc import Callable
from typing import Any

import timm
from torch import Tensor, nn

from tokennorm import backbones
from tokennorm.layers.building import check_arguments
from tokennorm.models.layer_decay import UNDECAYED

_PVT = {'cls': backbones.PVT, 'out_type': 'cls_token'}
_PVT_V2 = {'cls': backbones.PVTv2, 'out_type': 'avg_featmap'}
_SWIN = {'cls': backbones.Swin, 'out_type': 'avg_featmap'}
_VIT = {'cls': backbones.ViT, 'out_type': 'cls_token'}
_FAMILIES: dict[str, dict[str, Any]] = {
    **{f'pvt_{size}': dict(_PVT, arch=size) for size in ('mini', 'tiny', 'small', 'medium', 'large')},
    **{f'pvtv2_{size}': dict(_PVT_V2, arch=size) for size in ('b0', 'b1', 'b2', 'b3', 'b4', 'b5')},
    **{f'swin_{size}': dict(_SWIN, arch=size) for size in ('tiny', 'small', 'base', 'large')},
    **{f'vit_{size}': dict(_VIT, arch=size) for size in ('tiny', 'small', 'base')},
    **{f'vit_{size}_star': dict(_VIT, arch=f'{size}*') for size in ('tiny', 'small', 'base')},
}
_VARIANTS: dict[str, dict[str, Any]] = {
    'dtn': dict(token_norm_cfg=dict(type='DTN')),
    'dpn': dict(stem_cfg=dict(type='DualPatchEmbed')),
    'dtn_dpn': dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed')),
}


class Classifier(nn.Module):
    """A backbone and a linear head, with the attributes that timm's training and validation scripts read.

    It has no `set_grad_checkpointing`; `with_cp=True` checkpoints activations. Its features are pooled already.
    """

    def __init__(
        self, backbone: nn.Module, num_classes: int, in_chans: int, img_size: int | tuple[int, int], drop_rate: float
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.num_features = backbone.feature_info[-1]['num_chs']
        self.head_drop = nn.Dropout(drop_rate)
        self.reset_classifier(num_classes)
        sides = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
        mean, std = timm.data.IMAGENET_DEFAULT_MEAN, timm.data.IMAGENET_DEFAULT_STD
        self.pretrained_cfg = dict(num_classes=num_classes, input_size=(in_chans, *sides), mean=mean, std=std)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) -> logits (B, num_classes)."""
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, in_chans, H, W) -> features (B, num_features): the class token, or means over all tokens."""
        return self.backbone(x)[-1]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """(B, num_features) -> logits (B, num_classes), or the features with dropout."""
        x = self.head_drop(x)
        return x if pre_logits else self.head(x)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replaces the linear head by a new one. The pooling is the backbone's; another raises `ValueError`."""
        if global_pool is not None:
            raise ValueError(f'global_pool={global_pool!r} must be None: the backbone pools')
        self.num_classes = num_classes
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int]:
        """The depth of a parameter by its name, for timm's layer decay."""
        return lambda name: self.backbone.get_layer_depth(name, 'backbone.')[0]

    def get_classifier(self) -> nn.Module:
        """The linear head."""
        return self.head

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay, besides those of one dimension."""
        return {name for name, _ in self.named_parameters() if name.rpartition('.')[2] in UNDECAYED}


def _entry_point(name: str, family: dict[str, Any], variant: dict[str, Any]) -> Callable[..., nn.Module]:
    def create(
        pretrained: bool = False,
        num_classes: int = 1000,
        in_chans: int = 3,
        img_size: Any = 224,
        drop_rate: float = 0.0,
        **kwargs: Any,
    ) -> nn.Module:
        """Returns a classifier. The arguments are timm's, and those of the backbone."""
        if pretrained:
            raise ValueError(f'{name}: pretrained=True must be False: no weights of this model are published')
        kwargs = {key: value for key, value in kwargs.items() if not key.startswith(('pretrained_cfg', 'cache_dir'))}
        options = family | variant | kwargs
        cls = options.pop('cls')
        if cls is backbones.PVT and 'token_norm_cfg' in variant and options['arch'] != 'mini':
            options['arch'] += '-dtn'  # the heads of the DTN authors' code
        if cls in (backbones.PVT, backbones.ViT):
            options.setdefault('pretrain_img_size', img_size)
        check_arguments(cls, options, name)
        return Classifier(cls(in_channels=in_chans, **options), num_classes, in_chans, img_size, drop_rate)

    create.__name__ = create.__qualname__ = name
    return timm.models.register_model(create)


for _family, _args in _FAMILIES.items():
    for _variant, _more in _VARIANTS.items():
        setattr(sys.modules[__name__], f'{_family}_{_variant}', _entry_point(f'{_family}_{_variant}', _args, _more))
