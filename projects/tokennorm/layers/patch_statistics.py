"""Statistics of patches as an input of a patch embedding, an option of this project (docs/concepts/dpn.md)."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

# Added to the deviation of a patch before its logarithm, in units of the data preprocessor's output.
DEVIATION_EPS = 0.05


def patches_of(x: Tensor, window: tuple[int, int], stride: tuple[int, int], margin: int) -> Tensor:
    """Flattens windows of an image in the order (ph, pw, C): (B, C, H, W) -> (B, H', W', ph pw C).

    Height and width of `window` and `stride`, and the `margin` of zeros around the image, are in pixels.
    """
    x = rearrange(F.pad(x, (margin,) * 4), 'b c h w -> b h w c')  # first, so that exports copy whole rows of windows
    windows = x.unfold(1, window[0], stride[0]).unfold(2, window[1], stride[1])
    return rearrange(windows, 'b h w c ph pw -> b h w (ph pw c)')


class PatchStatistics(nn.Linear):
    """A linear layer of the mean of each channel and the log deviation of a patch."""

    def __init__(self, in_channels: int, embed_dims: int) -> None:
        super().__init__(in_channels + 1, embed_dims)
        nn.init.trunc_normal_(self.weight, std=0.02)
        nn.init.zeros_(self.bias)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, H, W, ph pw C), flattened in the order (ph, pw, C) -> (B, H, W, embed_dims)."""
        means = patches.unflatten(-1, (-1, self.in_features - 1)).mean(-2)
        deviation = patches.std(-1, keepdim=True, unbiased=False)
        return super().forward(torch.cat([means, torch.log(deviation + DEVIATION_EPS)], dim=-1))
