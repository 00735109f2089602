"""PSANet's mask (Zhao et al. 2018): attention maps centered on their pixel become maps over the whole image."""

import torch
from torch import Tensor


def _places(height: int, width: int, h_mask: int, w_mask: int, half_h: int, half_w: int, device) -> Tensor:
    """Returns (HW targets, HW sources): the place of a target in the mask that is centered on a source.

    h_mask x w_mask where the target is outside the mask.
    """
    y, x = torch.arange(height, device=device), torch.arange(width, device=device)
    rows = (y[:, None] - y + half_h)[:, None, :, None]
    columns = (x[:, None] - x + half_w)[None, :, None, :]
    inside = (rows >= 0) & (rows < h_mask) & (columns >= 0) & (columns < w_mask)
    return torch.where(inside, rows * w_mask + columns, h_mask * w_mask).view(height * width, -1)


def psamask_forward(
    input: Tensor, output: Tensor, psa_type: int, num_: int, h_feature: int, w_feature: int, h_mask: int, w_mask: int,
    half_h_mask: int, half_w_mask: int,
) -> None:  # fmt: skip
    """Writes `output` (N, H x W, H, W) of masks (N, h_mask x w_mask, H, W). Type 0 collects, type 1 distributes."""
    places = _places(h_feature, w_feature, h_mask, w_mask, half_h_mask, half_w_mask, input.device)
    masks = torch.cat([input.flatten(2), input.new_zeros(num_, 1, h_feature * w_feature)], 1)
    full = masks.gather(1, places.expand(num_, -1, -1))  # (N, targets, sources)
    output.copy_((full if psa_type == 0 else full.transpose(1, 2)).reshape(output.shape))


def psamask_backward(
    grad_output: Tensor, grad_input: Tensor, psa_type: int, num_: int, h_feature: int, w_feature: int, h_mask: int,
    w_mask: int, half_h_mask: int, half_w_mask: int,
) -> None:  # fmt: skip
    places = _places(h_feature, w_feature, h_mask, w_mask, half_h_mask, half_w_mask, grad_output.device)
    full = grad_output.flatten(2)
    full = full if psa_type == 0 else full.transpose(1, 2)
    masks = full.new_zeros(num_, h_mask * w_mask + 1, h_feature * w_feature)
    masks.scatter_(1, places.expand(num_, -1, -1), full)  # one target per place and source, except outside
    grad_input.copy_(masks[:, :-1].reshape(grad_input.shape))
