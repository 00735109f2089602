"""Weights for comparisons of models."""

import torch
from torch import nn


def randomize(module: nn.Module, amount: float = 0.2) -> nn.Module:
    """Adds noise to all parameters: initially biases are 0, norms are 1 and differences would not show."""
    for p in module.parameters():
        with torch.no_grad():
            p.add_(amount * torch.randn_like(p))
    module.eval()  # not returned: some models of OpenMMLab return None
    return module


def redraw(module: nn.Module, std: float = 1.0) -> nn.Module:
    """Draws all parameters anew, each from a normal distribution around 0."""
    for p in module.parameters():
        nn.init.normal_(p, std=std)
    return module
