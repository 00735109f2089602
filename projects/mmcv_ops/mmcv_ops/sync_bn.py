"""Local steps of mmcv's synchronized batch norm (MMSyncBN) on (N, C, L). mmcv reduces the statistics between them."""

from torch import Tensor

from .precision import float32


def sync_bn_forward_mean(input: Tensor, mean: Tensor) -> None:
    mean.copy_(float32(input)[0].mean((0, 2)))


def sync_bn_forward_var(input: Tensor, mean: Tensor, var: Tensor) -> None:
    var.copy_((float32(input)[0] - mean[:, None]).square().mean((0, 2)))


def sync_bn_forward_output(
    input: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, norm: Tensor, std: Tensor, output: Tensor, eps: float, momentum: float | Tensor,
    group_size: int,
) -> None:  # fmt: skip
    """Writes `norm`, `std`, `output`, and moves the running statistics, with the unbiased variance."""
    std.copy_((var + eps).sqrt())
    norm.copy_((float32(input)[0] - mean[:, None]) / std[:, None])
    output.copy_(norm if weight is None else norm * weight[:, None] + bias[:, None])
    if running_mean is not None:
        count = input.shape[0] * input.shape[2] * group_size
        unbiased = var * (count / (count - 1)) if count > 1 else var
        running_mean.copy_(momentum * mean + (1 - momentum) * running_mean)
        running_var.copy_(momentum * unbiased + (1 - momentum) * running_var)


def sync_bn_backward_param(grad_output: Tensor, norm: Tensor, grad_weight: Tensor, grad_bias: Tensor) -> None:
    (grad,) = float32(grad_output)
    grad_weight.copy_((grad * norm).sum((0, 2)))
    grad_bias.copy_(grad.sum((0, 2)))


def sync_bn_backward_data(
    grad_output: Tensor, weight: Tensor, grad_weight: Tensor, grad_bias: Tensor, norm: Tensor, std: Tensor,
    grad_input: Tensor,
) -> None:  # fmt: skip
    (grad,) = float32(grad_output)
    count = grad.shape[0] * grad.shape[2]
    through_statistics = (grad_weight[:, None] * norm + grad_bias[:, None]) / count
    grad_input.copy_((grad - through_statistics) * (weight / std)[:, None])
