"""Learning rates that decay from a detector's or classifier's heads towards the image (Clark et al., "ELECTRA", 2020;
Bao et al., "BEiT", 2021; Li et al., "ViTDet", 2022), for every TokenNorm backbone in any model."""

from typing import Any

from mmengine.optim import DefaultOptimWrapperConstructor
from torch import nn

from tokennorm.backbones.base import Backbone
from tokennorm.registry import OPTIM_WRAPPER_CONSTRUCTORS

# Position embeddings, class tokens and lambda: 0 is not a natural value for them. As in ViTDet, the relative positions
# `rel_pos_h` and `rel_pos_w` of a ViT are decayed.
UNDECAYED = {
    *('pos_embed', 'cls_token', 'reg_token', 'relative_position_bias_table'),
    *('position', 'mean_logit', 'var_logit'),  # of DTN
    *('mean_weight', 'var_weight'),  # of SwitchableNorm
}


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerDecayOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """mmengine's constructor, with learning rates lr * decay_rate ** (num_layers - 1 - depth) in TokenNorm backbones.

    A backbone's `get_layer_depth` returns the depth of a parameter and the number of depths. The stem has depth 0,
    everything after the blocks the last depth. All parameters outside the backbone have the last depth and the full lr.
    Position embeddings, class tokens, bias tables, and lambda and `position` of token normalization layers have no
    weight decay.

    Args:
        optim_wrapper_cfg: The optimizer wrapper's config, with an `optimizer` that has an `lr`.
        paramwise_cfg: `decay_rate`, above 0 and at most 1; `backbone_lr_mult`, a factor for the whole backbone, 1 by
            default; and mmengine's rules: `norm_decay_mult`, `bias_decay_mult`, `flat_decay_mult`, `custom_keys` and
            the others. An `lr_mult` multiplies with the decay. The weight decay of a parameter in `custom_keys` is the
            one set there: a key `backbone` would give its norms and biases weight decay, `backbone_lr_mult` does not.

    Raises:
        ValueError: without a `decay_rate` or an `lr`, and for a model without a TokenNorm backbone.

    Example:
        >>> optim_wrapper = dict(
        >>>     constructor='tokennorm.LayerDecayOptimWrapperConstructor',
        >>>     optimizer=dict(type='AdamW', lr=1e-4, weight_decay=0.1),
        >>>     paramwise_cfg=dict(decay_rate=0.7, norm_decay_mult=0.0, bias_decay_mult=0.0))
    """

    def __init__(self, optim_wrapper_cfg: dict[str, Any], paramwise_cfg: dict[str, Any] | None = None) -> None:
        super().__init__(optim_wrapper_cfg, paramwise_cfg)
        decay_rate = self.paramwise_cfg.get('decay_rate')
        if decay_rate is None or not 0 < decay_rate <= 1:
            raise ValueError(f'paramwise_cfg: decay_rate={decay_rate} must be above 0 and at most 1')
        if self.base_lr is None:
            raise ValueError('optimizer: lr=None must be a number, which decay_rate then scales')

    def add_params(self, params: list[dict[str, Any]], module: nn.Module, prefix: str = '', **kwargs: Any) -> None:
        """Adds a group for each parameter of the module to `params`. mmengine calls it for children with a prefix."""
        super().add_params(params, module, prefix, **kwargs)
        if prefix:
            return
        backbones = {f'{name}.' if name else '': m for name, m in module.named_modules() if isinstance(m, Backbone)}
        if not backbones:
            raise ValueError(f'LayerDecayOptimWrapperConstructor: {type(module).__name__} has no backbone of tokennorm')
        names = {id(p): name for name, p in module.named_parameters()}
        for group in params:
            name = names[id(group['params'][0])]
            own = next((prefix for prefix in backbones if name.startswith(prefix)), None)
            prefix = next(iter(backbones)) if own is None else own
            depth, num_layers = backbones[prefix].get_layer_depth(name, prefix)
            scale = self.paramwise_cfg['decay_rate'] ** (num_layers - 1 - depth)
            if own is not None:
                scale *= self.paramwise_cfg.get('backbone_lr_mult', 1.0)
            group['lr'] = group.get('lr', self.base_lr) * scale
            parent, _, leaf = name.rpartition('.')
            custom = any(key in f'{parent}.{leaf}' for key in self.paramwise_cfg.get('custom_keys', {}))
            if custom or self.base_wd is None:
                continue
            of_norm = 'norm' in type(module.get_submodule(parent)).__name__.lower() and leaf == 'weight'
            of_norms = self.paramwise_cfg.get('norm_decay_mult')
            if leaf in UNDECAYED:
                group['weight_decay'] = 0.0
            elif own is not None and of_norm and of_norms is not None:  # mmengine does not know RMSNorm
                group['weight_decay'] = self.base_wd * of_norms
