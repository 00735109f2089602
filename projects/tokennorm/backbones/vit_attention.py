"""Attention of the ViT backbone: global or in windows, with the relative positions of ViTDet."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.images.padding import ImageArea
from tokennorm.layers.pad import crop, pad_to_multiple

REL_POS = ('rel_pos_h', 'rel_pos_w')


def rows_of_offsets(table: Tensor, size: int) -> Tensor:
    """Rows of a table of relative positions (2 n - 1, D) for each query and key, (size, size, D).

    A query i tokens after its key has row n - 1 + i. If `size` is not n, the table is resized linearly, as in ViTDet.
    """
    if torch.compiler.is_exporting() or len(table) != 2 * size - 1:  # a comparison would fix an exported side
        table = F.interpolate(table.float().mT[None], size=2 * size - 1, mode='linear')[0].mT.to(table.dtype)
    at = torch.arange(size, device=table.device)
    return table[at[:, None] - at + size - 1]


def hide_keys(bias: Tensor | None, inside: Tensor | None) -> Tensor | None:
    """Bias of the logits, (B, N, queries, keys) or None -> one that hides keys which are not inside, bool (B, H, W)."""
    if inside is None:
        return bias
    inside = rearrange(inside, 'b h w -> b 1 1 (h w)')
    return inside if bias is None else bias.masked_fill(~inside, -torch.inf)


class Attention(nn.Module):
    """Attention of each token to all tokens.

    `rel_pos` is the height and width, in tokens, of the grid that the tables of ViTDet's relative positions are made
    for, initially 0; None turns them off.
    """

    image_area: ImageArea | None = None  # of `mask_padding`: outside of it there are no keys, and windows have zeros

    def __init__(self, dims: int, num_heads: int, rel_pos: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dims, 3 * dims)
        self.proj = nn.Linear(dims, dims)
        for name, size in zip(REL_POS, rel_pos or (None, None), strict=True):
            self.register_parameter(name, size and nn.Parameter(torch.zeros(2 * size - 1, dims // num_heads)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C)."""
        return self.attend(x, None if self.image_area is None else self.image_area.inside(*x.shape[1:3]))

    def attend(self, x: Tensor, inside: Tensor | None = None) -> Tensor:
        """The same. Keys are the tokens `inside`, bool (B, H, W); None is all."""
        height, width = x.shape[1:3]
        q, k, v = rearrange(self.qkv(x), 'b h w (three n d) -> three b n (h w) d', three=3, n=self.num_heads)
        bias = hide_keys(self.bias(q, height, width), inside)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        if torch.compiler.is_exporting():  # which replaces this attention by one with another memory layout
            out = out.clone(memory_format=torch.contiguous_format)
        return self.proj(rearrange(out, 'b n (h w) d -> b h w (n d)', h=height, w=width))

    def bias(self, q: Tensor, height: int, width: int) -> Tensor | None:
        """Bias of the logits, (B, N, H * W, H * W), for queries (B, N, H * W, D); None without relative positions.

        It is the product of the query with the relative position in height, plus the product with the relative position
        in width. Unlike the logits it is not divided by the root of D.
        """
        if self.rel_pos_h is None:
            return None
        q = q.unflatten(2, (height, width))
        of_rows = torch.einsum('b n h w d, h k d -> b n h w k', q, rows_of_offsets(self.rel_pos_h, height))
        of_columns = torch.einsum('b n h w d, w k d -> b n h w k', q, rows_of_offsets(self.rel_pos_w, width))
        return rearrange(of_rows[..., None] + of_columns[..., None, :], 'b n h w kh kw -> b n (h w) (kh kw)')


class WindowAttention(Attention):
    """Attention within windows that do not overlap (ViTDet, Sec. 3). Grids are padded with zeros to whole windows."""

    def __init__(self, dims: int, num_heads: int, window: int, rel_pos: bool = False) -> None:
        super().__init__(dims, num_heads, (window, window) if rel_pos else None)
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C)."""
        batch_size, height, width = x.shape[:3]
        inside = None if self.image_area is None else self.image_area.inside(height, width)
        x = x if inside is None else torch.where(inside[..., None], x, 0)
        x = pad_to_multiple(x, self.window, channels_last=True)
        rows, columns = x.shape[1] // self.window, x.shape[2] // self.window
        x = rearrange(x, 'b (h wh) (w ww) c -> (b h w) wh ww c', wh=self.window, ww=self.window)
        x = self.attend(x)
        x = rearrange(x.unflatten(0, (batch_size, rows, columns)), 'b h w wh ww c -> b (h wh) (w ww) c')
        return crop(x, height, width)
