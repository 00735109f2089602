"""RoIAlign, RoIPool and deformable RoIPool. RoIs are (K, 5): index of the image, x1, y1, x2, y2 in its pixels.

Features in half precision are converted to float32; RoIs are not rounded to the features' dtype.
"""

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor

from .checks import check_shapes
from .precision import float32
from .sampling import SAMPLES, average, bins, check, corners, equal_grids, offsets


def _boxes(rois: Tensor, scale: float, aligned: bool) -> tuple[Tensor, Tensor]:
    """Returns the corners x, y and the sides w, h of RoIs, (K, 2) each, in feature pixels."""
    corner = rois[:, 1:3] * scale - 0.5 * aligned
    sides = rois[:, 3:] * scale - 0.5 * aligned - corner
    return corner, sides if aligned else sides.clamp(min=1)


def roi_align_forward(
    input: Tensor, rois: Tensor, output: Tensor, argmax_y: Tensor, argmax_x: Tensor, aligned_height: int,
    aligned_width: int, spatial_scale: float, sampling_ratio: int, pool_mode: int, aligned: bool,
) -> None:  # fmt: skip
    """Writes `output` (K, C, aligned_height, aligned_width). Pool mode 1 is 'avg', 0 is 'max'.

    Mode 'max' also writes the row and the column, within its bin, of the highest sample. mmcv keeps the sample's place,
    which half precision would round. The output of a bin without samples is 0; in mmcv it is -10000 in this mode.
    """
    features, rois = float32(input, rois)
    rois = rois.to(features.dtype)
    check(rois, features, rois[:, 3:] - rois[:, 1:3] if aligned else None)
    size = aligned_height, aligned_width
    if pool_mode == 1:
        output.copy_(torchvision.ops.roi_align(features, rois, size, spatial_scale, sampling_ratio, aligned))
        return
    # The samples of all bins are the averages of a RoIAlign with one sample per bin, in a finer grid.
    sides = _boxes(rois, spatial_scale, aligned)[1]
    for k, (rows, columns) in equal_grids(*sides.T, size, sampling_ratio):
        fine = size[0] * rows, size[1] * columns
        channels = max(1, SAMPLES // (len(k) * fine[0] * fine[1]))  # a huge RoI takes a few channels at once
        for part in (slice(c, c + channels) for c in range(0, features.shape[1], channels)):
            samples = torchvision.ops.roi_align(features[:, part], rois[k], fine, spatial_scale, 1, aligned)
            highest, which = F.max_pool2d(samples, (rows, columns), return_indices=True)
            output[k, part] = highest.to(output)
            which = which.int()
            argmax_y[k, part] = (which // fine[1] % rows).to(output)
            argmax_x[k, part] = (which % columns).to(output)


def roi_align_backward(
    grad_output: Tensor, rois: Tensor, argmax_y: Tensor, argmax_x: Tensor, grad_input: Tensor, aligned_height: int,
    aligned_width: int, spatial_scale: float, sampling_ratio: int, pool_mode: int, aligned: bool,
) -> None:  # fmt: skip
    """Writes the gradient of the features (B, C, H, W) into `grad_input`."""
    grad, rois = float32(grad_output, rois)
    rois = rois.to(grad.dtype)
    size = aligned_height, aligned_width
    if pool_mode == 0:
        _max_backward(grad, rois, argmax_y, argmax_x, grad_input, size, spatial_scale, sampling_ratio, aligned)
    elif torch.are_deterministic_algorithms_enabled() and grad.device.type != 'cpu':
        # The operator refuses; torchvision's Python form, which `roi_align` takes in this mode, does not.
        with torch.enable_grad():
            leaf = grad.new_zeros(grad_input.shape, requires_grad=True)
            out = torchvision.ops.roi_align(leaf, rois, size, spatial_scale, sampling_ratio, aligned)
            grad_input.copy_(torch.autograd.grad(out, leaf, grad)[0])
    elif grad.device.type == 'cpu' and grad.dtype == torch.float32 and grad.shape[1] >= 32:
        _sparse_backward(grad, rois, grad_input, size, spatial_scale, sampling_ratio, aligned)
    else:
        args = spatial_scale, *size, *grad_input.shape, sampling_ratio, aligned
        grad_input.copy_(torch.ops.torchvision._roi_align_backward(grad, rois, *args))


def _sparse_backward(grad, rois, grad_input, size, spatial_scale, sampling_ratio, aligned) -> None:
    """Writes the product of the transposed, sparse matrix of all weights, which channels share, and the gradient.

    torchvision's kernel computes the weights anew for each channel: it takes four times as long on a CPU, unless bins
    have many samples.
    """
    n, channels, height, width = grad_input.shape
    total = grad.new_zeros(n * height * width, channels)
    corner, sides = _boxes(rois, spatial_scale, aligned)
    for k, (rows, columns) in equal_grids(*sides.T, size, sampling_ratio):
        if rows * columns > 16:
            args = spatial_scale, *size, *grad_input.shape, sampling_ratio, aligned
            few = torch.ops.torchvision._roi_align_backward(grad[k], rois[k], *args)
            total += few.permute(0, 2, 3, 1).reshape(total.shape)
            continue
        y = corner[k, 1, None, None] + offsets(sides[k, 1], size[0], rows)  # (k, PH, rows)
        x = corner[k, 0, None, None] + offsets(sides[k, 0], size[1], columns)
        places, weights = corners(y[:, :, None, :, None], x[:, None, :, None, :], height, width)
        places += (rois[k, 0].long() * height * width).view(-1, *[1] * 5)
        values = grad[k].permute(0, 2, 3, 1).reshape(-1, channels)  # (k x PH x PW, C)
        bin_of = torch.arange(len(values)).repeat_interleave(rows * columns * 4)
        indices, shape = torch.stack([places.flatten(), bin_of]), (len(total), len(values))
        with torch.sparse.check_sparse_tensor_invariants(False):  # unset, it warns
            matrix = torch.sparse_coo_tensor(indices, weights.flatten() / (rows * columns), shape)
        total.addmm_(matrix, values)
    grad_input.copy_(total.view(n, height, width, channels).permute(0, 3, 1, 2))


def _max_backward(grad, rois, argmax_y, argmax_x, grad_input, size, spatial_scale, sampling_ratio, aligned) -> None:
    """Adds the gradient of each output to the four neighbors of its highest sample."""
    channels, height, width = grad_input.shape[1:]
    flat = grad.new_zeros(grad_input.numel())
    region = torch.arange(len(rois), device=grad.device).view(-1, 1, 1, 1)
    row, column = torch.arange(size[0], device=grad.device)[:, None], torch.arange(size[1], device=grad.device)
    corner, sides = _boxes(rois, spatial_scale, aligned)
    for k, (rows, columns) in equal_grids(*sides.T, size, sampling_ratio):
        y = corner[k, 1, None, None] + offsets(sides[k, 1], size[0], rows)  # (k, PH, rows)
        x = corner[k, 0, None, None] + offsets(sides[k, 0], size[1], columns)
        first, max_y, max_x = region[: len(k)], argmax_y[k].long(), argmax_x[k].long()  # (k, C, PH, PW)
        if rows * columns > channels:  # neighbors of the highest samples only
            places, weights = corners(y[first, row, max_y], x[first, column, max_x], height, width)
            places, weights = places.flatten(0, 3), weights.flatten(0, 3)
        else:
            places, weights = corners(y[:, :, None, :, None], x[:, None, :, None, :], height, width)
            which = (((first * size[0] + row) * size[1] + column) * rows + max_y).mul_(columns).add_(max_x).flatten()
            places, weights = (t.flatten(0, 4).index_select(0, which) for t in (places, weights))
        maps = (rois[k, :1].long() * channels + torch.arange(channels, device=grad.device)) * height * width  # (k, C)
        maps = maps.repeat_interleave(size[0] * size[1], 1).view(-1, 1)
        values = weights.mul_(grad[k].reshape(-1, 1))
        flat.index_add_(0, places.add_(maps).flatten(), values.flatten())
    grad_input.copy_(flat.view(grad_input.shape))


def roi_pool_forward(
    input: Tensor, rois: Tensor, output: Tensor, argmax: Tensor, pooled_height: int, pooled_width: int,
    spatial_scale: float,
) -> None:  # fmt: skip
    """Writes the maximum per bin and its index into H x W, 0 and -1 where a bin is empty.

    The bins are those of mmcv's CUDA kernel: from floor to ceil of (x2 + 1) x scale. torchvision rounds the RoI first.
    """
    features, rois = float32(input, rois)
    rois = rois.to(features.dtype)
    check(rois, features, None)
    height, width = features.shape[2:]
    output.zero_(), argmax.fill_(-1)
    flat = features.transpose(0, 1).flatten(1)  # (C, N x H x W)
    start = rois[:, 1:3] * spatial_scale
    sides = (rois[:, 3:] + 1) * spatial_scale - start
    regions = (sides > 0).all(1).nonzero()[:, 0]
    for k in regions.split(16) if len(regions) else ():
        rows = _pixels(start[k, 1], sides[k, 1], pooled_height, height)  # (k, PH, rows per bin), -1 outside
        columns = _pixels(start[k, 0], sides[k, 0], pooled_width, width)
        rows, columns = rows[:, :, None, :, None], columns[:, None, :, None, :]
        places = torch.where((rows >= 0) & (columns >= 0), rows * width + columns, -1).flatten(3)
        images = rois[k, 0].long().view(-1, 1, 1, 1)
        values = flat[:, images * height * width + places.clamp(min=0)].masked_fill(places < 0, -torch.inf)
        if places.shape[-1]:
            highest, which = values.transpose(0, 1).max(-1)
            empty = (places < 0).all(-1)[:, None].expand_as(highest)
            output[k] = highest.masked_fill(empty, 0).to(output)
            where = places[:, None].expand(-1, len(flat), -1, -1, -1).gather(-1, which[..., None])[..., 0]
            argmax[k] = where.to(argmax)


def _pixels(start: Tensor, side: Tensor, count: int, limit: int) -> Tensor:
    """Returns the pixels of each bin along one axis, (k, count, most pixels per bin), filled up with -1."""
    bounds = torch.arange(count + 1, device=start.device) * (side[:, None] / count) + start[:, None]
    first, end = (b.clamp(0, limit).long() for b in (bounds[:, :-1].floor(), bounds[:, 1:].ceil()))
    pixels = first[..., None] + torch.arange(int((end - first).max().clamp(min=0)), device=start.device)
    return torch.where(pixels < end[..., None], pixels, -1)


def roi_pool_backward(
    grad_output: Tensor, rois: Tensor, argmax: Tensor, grad_input: Tensor, pooled_height: int, pooled_width: int,
    spatial_scale: float,
) -> None:  # fmt: skip
    (grad,) = float32(grad_output)
    channels, height, width = grad_input.shape[1:]
    maps = rois[:, 0].long()[:, None] * channels + torch.arange(channels, device=grad.device)
    places = maps[..., None, None] * height * width + argmax.clamp(min=0)
    flat = grad.new_zeros(grad_input.numel()).index_add_(0, places.flatten(), (grad * (argmax >= 0)).flatten())
    grad_input.copy_(flat.view(grad_input.shape))


def _deform_roi_pool(input, rois, offset, size, scale: float, sampling_ratio: int, gamma: float) -> Tensor:
    output = input.new_zeros(len(rois), input.shape[1], *size)
    shifts = torch.zeros_like(rois[:, :2])[..., None, None]  # x, y
    if offset.numel():
        shifts = gamma * scale * (rois[:, 3:] - rois[:, 1:3])[..., None, None] * offset.view(-1, 2, *size)
    corner, sides = _boxes(rois, scale, aligned=True)
    for k, y, x in bins(*sides.T, size, sampling_ratio):
        place = corner[k, :, None, None] + shifts[k]
        output[k] = average(input, rois[k, 0].long(), y + place[:, 1, ..., None], x + place[:, 0, ..., None])
    return output


def deform_roi_pool_forward(
    input, rois, offset, output, pooled_height, pooled_width, spatial_scale, sampling_ratio, gamma
) -> None:
    """Writes the average per bin (K, C, PH, PW). Offsets (K, 2, PH, PW), x before y, are in units of gamma x RoI."""
    features, rois, offset = float32(input, rois, offset)
    check(rois, features, rois[:, 3:] - rois[:, 1:3])
    size = pooled_height, pooled_width
    if offset.numel():
        check_shapes('deform_roi_pool', offset=(offset, (len(rois), 2, *size)))
    output.copy_(_deform_roi_pool(features, rois, offset, size, spatial_scale, sampling_ratio, gamma))


def deform_roi_pool_backward(
    grad_output, input, rois, offset, grad_input, grad_offset, pooled_height, pooled_width, spatial_scale,
    sampling_ratio, gamma,
) -> None:  # fmt: skip
    grad, features, rois, offset = float32(grad_output, input, rois, offset)
    features, offset = features.detach().requires_grad_(), offset.detach().requires_grad_()
    size = pooled_height, pooled_width
    with torch.enable_grad():
        output = _deform_roi_pool(features, rois, offset, size, spatial_scale, sampling_ratio, gamma)
        if not output.requires_grad:  # there are no samples: mmcv's gradients are 0 before
            return
        grads = torch.autograd.grad(output, [features, offset], grad, materialize_grads=True)
    grad_input.copy_(grads[0])
    grad_offset.copy_(grads[1])
