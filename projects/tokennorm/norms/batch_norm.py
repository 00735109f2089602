"""Batch normalization (Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
Covariate Shift", 2015) of token grids."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.ops.moments import check_grid, tokens_inside
from tokennorm.ops.tensors import in_float32


class BatchNorm(nn.Module):
    """Normalizes each channel by its mean and variance over all tokens of the batch; in eval mode by running ones.

    The class holds torch's own batch norm, called with channels first. So code that looks for batch norms in a model
    (`norm_eval`, `norm_decay_mult`) finds it, and code that replaces them (torch's and mmengine's
    `convert_sync_batchnorm`, mmengine's `revert_sync_batchnorm`) can replace it.

    Args:
        momentum: Weight of a batch in the running statistics; None averages over all batches.
    """

    is_token_norm = True

    bn_type: type[nn.modules.batchnorm._BatchNorm] = nn.BatchNorm2d

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.bn = self.bn_type(num_features, eps=eps, momentum=momentum)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C). Tokens outside of `valid` are normalized by the running statistics."""
        check_grid(type(self).__name__, x, self.bn.num_features, valid)
        inside = tokens_inside(x, valid) if self.bn.training else None
        return in_float32(self._normalize, x, inside)

    def _normalize(self, x: Tensor, inside: Tensor | None) -> Tensor:
        x = x.to(self.bn.weight.dtype)  # torch needs the dtype of its weight; it computes in float32
        if inside is None:
            return rearrange(self.bn(rearrange(x, 'b h w c -> b c h w')), 'b c h w -> b h w c')
        inside = inside[..., 0]
        out = torch.empty_like(x)
        out[inside] = self.bn(x[inside][:, :, None, None])[:, :, 0, 0]
        running = self.bn.running_mean.clone(), self.bn.running_var.clone()  # the next batch changes them in place
        out[~inside] = F.batch_norm(x[~inside], *running, self.bn.weight, self.bn.bias, eps=self.bn.eps)
        return out


class SyncBatchNorm(BatchNorm):
    """Batch normalization with one mean and variance for the batches of all ranks of distributed training."""

    bn_type = nn.SyncBatchNorm
