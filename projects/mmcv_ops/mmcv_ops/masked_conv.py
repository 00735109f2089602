"""Masked convolution, which computes the marked pixels of one image only: mmcv multiplies columns copied here."""

import torch.nn.functional as F
from torch import Tensor


def masked_im2col_forward(
    im: Tensor,
    mask_h_idx: Tensor,
    mask_w_idx: Tensor,
    col: Tensor,
    kernel_h: int,
    kernel_w: int,
    pad_h: int,
    pad_w: int,
) -> None:
    """Writes the neighborhoods of n pixels of `im` (1, C, H, W) into `col` (C x kernel_h x kernel_w, n)."""
    padded = F.pad(im[0], (pad_w, kernel_w, pad_h, kernel_h))
    columns = col.view(im.shape[1], kernel_h, kernel_w, -1)
    for i in range(kernel_h):
        for j in range(kernel_w):
            columns[:, i, j] = padded[:, mask_h_idx + i, mask_w_idx + j]


def masked_col2im_forward(
    col: Tensor, mask_h_idx: Tensor, mask_w_idx: Tensor, im: Tensor, height: int, width: int, channels: int
) -> None:
    """Writes the n columns of `col` (C, n) into the pixels of `im` (1, C, H, W). Other pixels are unchanged."""
    im[0, :, mask_h_idx, mask_w_idx] = col
