"""FLOPs, as multiply-adds: of operators that mmengine's counter skips, and of whole detectors at any image size."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from mmengine.analysis.jit_handles import get_shape
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from tokennorm.engine.compat import count_operators

# Of mmdet's two-stage detectors, per image: proposals, and detections with a mask.
NUM_PROPOSALS, NUM_MASKS = 1000, 100
# The operation that each token normalizer calls exactly once, in eval mode, on a tensor as large as its input.
_OPS_OF_NORMS = (
    'aten::square',  # DTN, RMSNorm, PowerNorm
    'aten::var_mean',  # IN, GN, SN
    'aten::linalg_vector_norm',  # ScaleNorm
    'aten::tanh',  # DyT
    'aten::erf',  # Derf
)


def count_attention_and_norms() -> None:
    """Adds to mmengine's counts of multiply-adds

    - `scaled_dot_product_attention`: its two matrix products, without softmax as for attention written out;
    - token normalizers, 5 operations for each element, as mmengine counts `layer_norm`. The weighted sums of DTN over
      the grid are matrix products, which mmengine counts itself.
    """
    count_operators({'aten::scaled_dot_product_attention': _attention} | dict.fromkeys(_OPS_OF_NORMS, _normalization))


def _attention(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Queries (..., L, D), keys (..., S, D), values (..., S, V): L S (D + V) of each leading index."""
    return _attention_of(*(get_shape(tensor) for tensor in inputs[:3]))


def _attention_of(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> int:
    return math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _normalization(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """(x - mean) * rsqrt(var) * weight + bias, for each element of the operation's input."""
    return 5 * math.prod(get_shape(inputs[0]))


def count_operations(forward: Callable[[Tensor], Any], size: tuple[int, int]) -> int:
    """The operations of a forward pass for one image, as `count_attention_and_norms` makes mmengine count them.

    Nothing is computed: each operation is only asked for the shape of its result, which takes a second for an image of
    any size. Matrix products, convolutions, attention and norms are counted, and, other than by mmengine, nothing for
    resized maps and frozen batch norms. DTN counts as its sums along the two axes (`tokennorm.ops.dtn`), of which the
    custom forms leave out what is too small to matter.

    Args:
        forward: A backbone, or what `forward_of` makes of a detector, with parameters of float64: DTN then has the form
            that reads no values.
        size: Height and width of the image.
    """
    aten = torch.ops.aten
    of_norms = (aten.pow, aten.var_mean, aten.linalg_vector_norm, aten.tanh, aten.erf)  # `_OPS_OF_NORMS`: pow is square
    norms = (aten.native_layer_norm, aten.native_group_norm, *of_norms)
    formulas = {  # twice: FlopCounterMode counts multiplications and additions
        **dict.fromkeys(norms, lambda x, *args, **kwargs: 2 * 5 * math.prod(x)),
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *args, **kwargs: 2 * _attention_of(q, k, v),
    }
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True), counter:
        forward(torch.empty(1, 3, *size, dtype=torch.float64))
    return counter.get_total_flops() // 2


def forward_of(detector: nn.Module) -> Callable[[Tensor], None]:
    """The network of a single-stage detector of mmdet, or of a two-stage one with 1000 proposals and 100 masks, without
    what picks boxes."""

    def forward(image: Tensor) -> None:
        maps = detector.extract_feat(image)
        if not hasattr(detector, 'roi_head'):
            detector.bbox_head(maps)
            return
        detector.rpn_head(maps)
        roi_head = detector.roi_head
        for part, count in (('bbox', NUM_PROPOSALS), ('mask', NUM_MASKS)):
            side = getattr(roi_head, f'{part}_roi_extractor').roi_layers[0].output_size
            getattr(roi_head, f'{part}_head')(image.new_zeros(count, maps[0].shape[1], *side))

    return forward
