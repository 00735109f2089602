"""Dynamic Token Normalization in torch operations that work in place, with a backward pass of its own.

The result is that of `eager_dtn`. Autograd keeps some twenty tensors as large as the tokens of that form; here the
backward pass computes the statistics of windows again, and nothing is saved but the tokens, two numbers for each, and
the parameters. There is no copy between the products along both axes, and each operation writes where its input was.

Letters of the shapes: B batch, H x W grid, h x w windows of p x p tokens, C channels, N heads, D = C / N.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from tokennorm.ops.cpu import kernel
from tokennorm.ops.dtn_eager import average_windows, axis_weights, eager_dtn, sigmoid, windows_to_filter
from tokennorm.ops.moments import tokens_inside
from tokennorm.ops.tensors import result_dtype, without_autocast


def in_place_dtn(
    x: Tensor, *parameters: Tensor | None, eps: float = 1e-5, pool: int = 1, valid: Tensor | None = None
) -> Tensor:
    """`dtn` in its 'paper' form. Arguments and result are those of `dtn`, the first six by position.

    Nothing is checked. The tensors must have memory (`kernel.has_memory`), and x at least one token.
    """
    out_dtype = result_dtype(x)
    inside = tokens_inside(x, valid)
    with without_autocast(x):
        tokens = x if inside is None else x.where(inside, 0)
        y = InPlaceDTN.apply(tokens, *parameters, eps, pool, valid, out_dtype)
        if inside is None:
            return y
        given, weight, bias = (t.to(torch.promote_types(x.dtype, torch.float32)) for t in (x, *parameters[:2]))
        return y.where(inside, F.layer_norm(given, weight.shape, weight, bias, eps).to(out_dtype))


class InPlaceDTN(torch.autograd.Function):
    """`in_place_dtn` of tokens that are 0 in the padding, where the result has no meaning."""

    @staticmethod
    def forward(ctx, x, weight, bias, mean_logit, var_logit, position, eps, pool, valid, dtype):
        parameters = (weight, bias, mean_logit, var_logit, position)
        call = Call(x, parameters, eps, pool, valid)
        ctx.save_for_backward(x, *parameters, valid, call.own_mean, call.own_total)
        ctx.eps, ctx.pool = eps, pool
        return call.normalized(dtype)

    @staticmethod
    def backward(ctx, grad_y):
        """The gradients of the arguments of `forward`, None for those that have none. torch calls it."""
        x, *parameters, valid, own_mean, own_total = ctx.saved_tensors
        with without_autocast(x):
            if torch.is_grad_enabled():  # create_graph=True: of the eager form, which can be differentiated again
                given = [t for t in (x, *parameters) if t is not None and t.requires_grad]
                y = eager_dtn(x, *parameters, eps=ctx.eps, pool=ctx.pool, valid=valid)
                gradients = iter(torch.autograd.grad(y, given, grad_y.to(y.dtype), create_graph=True))
                found = [next(gradients) if t is not None and t.requires_grad else None for t in (x, *parameters)]
            elif kernel.has_memory(grad_y):
                found = Call(x, parameters, ctx.eps, ctx.pool, valid, own_mean, own_total).gradients(grad_y)
            else:
                found = kernel.eager_gradients(grad_y, x, parameters, ctx.eps, ctx.pool, valid)
        return *found, None, None, None, None


class Call:
    """The passes over one tensor of tokens; parameters of channels are (N, D), of heads (N, 1)."""

    def __init__(
        self,
        x: Tensor,
        parameters: Sequence[Tensor | None],
        eps: float,
        pool: int,
        valid: Tensor | None,
        own_mean: Tensor | None = None,
        own_total: Tensor | None = None,
    ) -> None:
        dtype = torch.promote_types(x.dtype, torch.float32)
        self.x, self.parameters, self.eps, self.pool, self.valid = x, parameters, eps, pool, valid
        weight, bias, mean_logit, var_logit, position = (t if t is None else t.to(dtype) for t in parameters)
        self.heads = len(var_logit)
        self.weight, self.bias = weight.reshape(self.heads, -1), bias.reshape(self.heads, -1)
        self.tokens = x.unflatten(-1, (self.heads, -1))
        # lambda, and 1 - lambda without cancellation where lambda is near 1.
        self.var_own, self.var_inter = sigmoid(var_logit)[:, None], sigmoid(-var_logit)[:, None]
        self.mean_own, self.mean_inter = torch.ones_like(self.var_own), torch.zeros_like(self.var_own)
        if mean_logit is not None:
            self.mean_own, self.mean_inter = sigmoid(mean_logit)[:, None], sigmoid(-mean_logit)[:, None]
        is_forward = own_mean is None
        if is_forward:  # the fastest way to both moments; on a CPU they have the dtype of the tokens
            given = x if x.is_cuda else x.to(dtype)
            _, own_mean, scale = torch.native_layer_norm(given, x.shape[-1:], None, None, eps)
            own_mean, own_total = own_mean[..., None], scale[..., None] ** -2
        self.own_mean, self.own_total = own_mean, own_total  # (B, H, W, 1, 1), the variance with eps

        inside = tokens_inside(x, valid)
        windows, shift, counts = windows_to_filter(x, inside, pool, valid)
        self.shift = shift.unflatten(-1, (self.heads, -1))  # (B, 1, 1, N, D)
        a1, a2, a3 = position.unbind(dim=-1)
        self.p_x = axis_weights(a1, a2, windows.shape[2], counts[0])
        self.p_y = axis_weights(a1, a3, windows.shape[1], counts[1])
        # Both moments with the axis of the first product in front and that of the second at the end.
        batch, h, w = windows.shape[:3]
        lead = (self.heads,) if valid is None else (batch, self.heads)
        moments = shift.new_empty(*lead, w, *([batch] if valid is None else []), 2, x.shape[-1] // self.heads, h)
        z, square = self.planes(moments)
        torch.sub(windows.unflatten(-1, (self.heads, -1)), self.shift, out=z)
        torch.mul(z, z, out=square)
        along_x = (self.p_x @ self._rows(moments)).view(moments.shape)
        self.kept: tuple[Tensor, ...] = () if is_forward else (moments, along_x)  # for the backward pass
        del moments, z, square, windows
        self.mean, self.var = self.planes((self._columns(along_x) @ self.p_y.mT).view(along_x.shape))
        self.var.addcmul_(self.mean, self.mean, value=-1).clamp_(min=0)

    def planes(self, moments: Tensor) -> tuple[Tensor, Tensor]:
        """The two planes of what `moments` is, each (B, h, w, N, D)."""
        stored = 'n x b m d y' if self.valid is None else 'b n x m d y'
        first, second = rearrange(moments, f'{stored} -> m b y x n d')
        return first, second

    def _rows(self, moments: Tensor) -> Tensor:
        """A matrix ([B,] N, w, rest)."""
        return moments.flatten(self.p_x.ndim - 1)

    def _columns(self, moments: Tensor) -> Tensor:
        """A matrix ([B,] N, rest, h)."""
        return moments.flatten(self.p_x.ndim - 2, -2)

    def blocks(self, tokens: list[Tensor], windows: list[Tensor]) -> Iterator[tuple[int, list[Tensor], list[Tensor]]]:
        """For whole windows, and for partial ones at the right and at the bottom: how many tokens a window has, and
        views (B, h, p, w, p, N, D) of tokens and (B, h, 1, w, 1, N, D) of windows."""

        def spans(size: int) -> list[tuple[int, int]]:
            whole = size // self.pool * self.pool
            return [(start, end) for start, end in ((0, whole), (whole, size)) if start < end]

        for top, bottom in spans(self.x.shape[1]):
            for left, right in spans(self.x.shape[2]):
                tall, wide = min(self.pool, bottom - top), min(self.pool, right - left)
                ys, xs = (slice(a // self.pool, -(-b // self.pool)) for a, b in ((top, bottom), (left, right)))
                yield (
                    tall * wide,
                    [t[:, top:bottom, left:right].unflatten(2, (-1, wide)).unflatten(1, (-1, tall)) for t in tokens],
                    [t[:, ys, None, xs, None] for t in windows],
                )

    def mixed(self) -> tuple[Tensor, Tensor]:
        """Of windows: (1 - lambda) mean and (1 - lambda) (variance + eps), (B, h, w, N, D)."""
        level, total = (torch.empty(self.mean.shape, dtype=self.mean.dtype, device=self.mean.device) for _ in range(2))
        torch.addcmul(self.shift * self.mean_inter, self.mean, self.mean_inter, out=level)
        torch.addcmul(self.eps * self.var_inter, self.var, self.var_inter, out=total)
        return level, total

    def standardized(
        self, x: Tensor, own_mean: Tensor, own_total: Tensor, level: Tensor, total: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Of the tokens of a block, (x - mean) / deviation and 1 / deviation."""
        scale = torch.addcmul(total, own_total, self.var_own).rsqrt_()
        centered = torch.addcmul(level, own_mean, self.mean_own)
        return torch.sub(x, centered, out=centered).mul_(scale), scale

    def normalized(self, dtype: torch.dtype) -> Tensor:
        """The result (B, H, W, C)."""
        y = torch.empty(self.x.shape, dtype=dtype, device=self.x.device)
        tokens = [self.tokens, self.own_mean, self.own_total, y.view(self.tokens.shape)]
        mixed = self.mixed()
        del self.mean, self.var
        for _, (x, own_mean, own_total, out), windows in self.blocks(tokens, list(mixed)):
            standard, _ = self.standardized(x, own_mean, own_total, *windows)
            torch.addcmul(self.bias, standard, self.weight, out=out)
        return y

    def gradients(self, grad_y: Tensor) -> list[Tensor | None]:
        """The gradients of the tokens and of each parameter, in their dtypes.

        With e = grad_y weight / deviation and f = grad_y (x - mean) / deviation^3, the gradient of a token's mean is
        -e, and that of its variance -f weight / 2.
        """
        moments, along_x = self.kept
        of_moments = torch.empty_like(moments)
        of_mean, of_square = self.planes(of_moments)
        center = self.shift.mean((-2, -1), keepdim=True)  # sums of e are multiplied by means: smaller ones, less error
        of_tokens, direct = self.gradients_of_tokens(grad_y, center, of_mean, of_square)
        of_weight, of_bias, own_e, own_f = of_tokens
        mean_sums = of_mean.sum((1, 2), keepdim=True)
        inter_e = ((of_mean * self.mean).sum((0, 1, 2)) + (mean_sums * (self.shift - center)).sum((0, 1, 2))).sum(-1)
        inter_f = (of_square * (self.var + self.eps)).sum((0, 1, 2, 4))
        of_mean_logit = -self.mean_own[:, 0] * (self.mean_inter[:, 0] * own_e.sum(-1) + inter_e)
        of_var_logit = -self.var_own[:, 0] * (0.5 * self.var_inter[:, 0] * (own_f * self.weight).sum(-1) + inter_f)

        of_square.masked_fill_(self.var <= 0, 0)
        of_mean.addcmul_(of_square, self.mean, value=-2)
        of_p_y = self._columns(of_moments).mT @ self._columns(along_x)
        of_along_x = (self._columns(of_moments) @ self.p_y).view(of_moments.shape)
        of_p_x = self._rows(of_along_x) @ self._rows(moments).mT
        square_x, of_a2 = gradients_of_axis(self.p_x, of_p_x)
        square_y, of_a3 = gradients_of_axis(self.p_y, of_p_y)
        of_position = torch.stack([square_x + square_y, of_a2, of_a3], dim=-1)
        of_z, of_square = self.planes((self.p_x.mT @ self._rows(of_along_x)).view(of_moments.shape))
        of_windows = of_z.addcmul_(self.planes(moments)[0], of_square, value=2)
        inside = tokens_inside(self.x, self.valid)
        if inside is not None and self.pool > 1:
            share = average_windows(inside.to(of_z.dtype), self.pool)[..., None]
            of_windows = of_windows / share.where(share > 0, 1)
        grad_x = torch.empty(self.x.shape, dtype=self.x.dtype, device=self.x.device)
        outs = self.blocks([grad_x.view(self.tokens.shape)], [of_windows])
        for own, (count, (out,), (inter,)) in zip(direct, outs, strict=True):
            torch.add(own, inter, alpha=1 / count, out=out)
        found = [of_weight.flatten(), of_bias.flatten(), of_mean_logit, of_var_logit, of_position]
        pairs = zip(self.parameters, found, strict=True)
        return [grad_x, *(None if t is None else gradient.to(t.dtype) for t, gradient in pairs)]

    def gradients_of_tokens(
        self, grad_y: Tensor, center: Tensor, of_mean: Tensor, of_square: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Writes the gradients of the statistics of windows, and returns sums over tokens (4, N, D) and gradients.

        The sums are the gradients of weight and bias, and of e and f times the token's own mean, less `center`, and
        variance. The gradients of tokens are those of each block but for what comes through the windows.
        """
        tokens = [self.tokens, self.own_mean, self.own_total, grad_y.unflatten(-1, (self.heads, -1))]
        windows = [*self.mixed(), of_mean, of_square]
        sums, direct = torch.zeros(4, *self.weight.shape, dtype=self.weight.dtype, device=self.weight.device), []
        for count, (x, own_mean, own_total, grad), (level, total, mean_out, square_out) in self.blocks(tokens, windows):
            f, scale = self.standardized(x, own_mean, own_total, level, total)
            e = torch.mul(grad, scale)
            sums[1] += grad.sum((0, 1, 2, 3, 4), dtype=e.dtype)
            sums[0] += f.mul_(grad).sum((0, 1, 2, 3, 4))
            f.mul_(scale).mul_(scale)
            e.mul_(self.weight)
            rows_e, rows_f = e.flatten(0, 4).flatten(1), f.flatten(0, 4).flatten(1)
            sums[2] += ((own_mean - center[:, None, :, None]).flatten() @ rows_e).view(self.weight.shape)
            sums[3] += (own_total.flatten() @ rows_f).view(self.weight.shape)
            window_e, window_f = (t if count == 1 else t.sum((2, 4), keepdim=True) for t in (e, f))
            torch.mul(window_e, -self.mean_inter, out=mean_out)
            torch.mul(window_f, -0.5 * self.var_inter * self.weight, out=square_out)
            # A token's own mean and variance depend on all of its channels.
            channels = rows_e.shape[1]
            slope = (rows_f @ (self.var_own * self.weight).flatten()).view(own_mean.shape) / channels
            offset = (rows_e @ self.mean_own.expand_as(self.weight).flatten()).view(own_mean.shape) / channels
            direct.append(e.addcmul_(x, slope, value=-1).add_(own_mean * slope - offset))
        return sums, direct


def gradients_of_axis(p: Tensor, of_p: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `square` and `linear` of `axis_weights`, (N,), from its result and the gradient of that."""
    index = torch.arange(p.shape[-1], dtype=p.dtype, device=p.device)
    offset = index - index[:, None]
    of_exponent = p * (of_p - (p * of_p).sum(dim=-1, keepdim=True))
    of_exponent = of_exponent.view(-1, *p.shape[-3:]).sum(dim=0)
    return (of_exponent * offset * offset).sum(dim=(1, 2)), (of_exponent * offset).sum(dim=(1, 2))
