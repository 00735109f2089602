"""Triton kernels of Dynamic Token Normalization over a grid. `dtn_triton` launches them. Importing needs Triton.

Letters: B images, H x W tokens, h x w pooled tokens (means of POOL x POOL windows; the tokens themselves if POOL is 1),
C channels, N heads of D channels. A chunk is at most BLOCK_D channels of one head. There are G chunks.

P of a head is Py (x) Px (see `dtn`). No kernel stores it: `axis` computes each weight where it is used.

Tensors that the kernels share, all contiguous:

    x, y, dy, dx  (B, H, W, C)
    direct        (B, H, W, C)      the part of dx that does not pass through a mean or a variance
    intra         (2, B, H, W)      mean and variance of each token
    shift         (B, C)            a typical value of the channel, subtracted before squaring
    pooled        (B, h, w, C)      pooled tokens minus the shift; only if POOL > 1
    moments       (2, B, h, w, C)   Px (x - shift) and Px (x - shift)^2; the backward pass later overwrites them with
                                    their gradients
    grads         (2, B, h, w, C)   gradients of the two moments over both axes
    token_sums    (2, B, H, W, G)   each chunk's part of the gradients of the token's mean and variance
    rows          (3, V, N, w + h)  1 / Z, mean of j - p and mean of (j - p)^2; the x axis first; V is B with `valid`
                                    and 1 without
    bands         (4, V, N, w + h)  first and last position with weight in a row, first and last row in a column

`plane` is the size of one of the three or four tables in `rows` and `bands`. `valid` (B, 2) holds the height and width
of each image in tokens; None means that the whole grid is image.
"""
