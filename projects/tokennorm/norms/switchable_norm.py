"""Switchable Normalization (Luo et al., "Switchable Normalization for Learning-to-Normalize Deep Representation", 2019)
of token grids."""

from torch import Tensor

from tokennorm.norms.layer_norm import GridNorm, TokenNorm
from tokennorm.ops.moments import image_moments, merge_moments, normalize


class SwitchableNorm(GridNorm, TokenNorm):
    """Normalizes by a learned mixture of the statistics of instance, layer and batch normalization (Eqs. 3 to 5).

    The statistics of layer normalization are the paper's, over all tokens and channels of an image. In eval mode the
    statistics of batch normalization are moving averages over training, as in the authors' code. (The paper averages
    over some batches with frozen weights instead.) Each rank has its own moving averages.

    Args:
        momentum: Weight of a batch in the moving averages.

    Attributes:
        mean_weight, var_weight: Logits of the mixture, in the order above, (3,); initially equal.
        running_mean, running_var: Moving averages of the batches' mean and (biased) variance, (C,).
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, eps=eps)
        self.momentum = momentum
        self._add_parameter('mean_weight', (3,), 1.0)
        self._add_parameter('var_weight', (3,), 1.0)
        self._add_buffer('running_mean', (num_features,), 0.0)
        self._add_buffer('running_var', (num_features,), 1.0)

    def _normalize(self, x: Tensor, inside: Tensor | None) -> Tensor:
        of_image = image_moments(x, inside)
        of_layer = merge_moments(*of_image, dim=-1)
        if self.training and x.numel():  # an empty batch has no statistics
            count = None if inside is None else inside.sum(dim=(1, 2), keepdim=True).to(x.dtype)
            of_batch = merge_moments(*of_image, dim=0, share=None if count is None else count / count.sum())
            for running, moment in zip((self.running_mean, self.running_var), of_batch, strict=True):
                running.lerp_(moment.detach().flatten().to(running.dtype), self.momentum)
        else:
            of_batch = self.running_mean, self.running_var
        mean, var = (
            sum(share * moment for share, moment in zip(logits.softmax(dim=0), moments, strict=True))
            for logits, *moments in zip((self.mean_weight, self.var_weight), of_image, of_layer, of_batch, strict=True)
        )
        return normalize(x, mean, var, self.eps, self.weight, self.bias)
