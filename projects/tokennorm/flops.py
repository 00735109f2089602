"""Teaches mmengine's counter of operations the ones that it passes over and our backbones rest on."""

import math
from collections.abc import Sequence
from typing import Any

from mmengine.analysis import complexity_analysis
from mmengine.analysis.jit_handles import get_shape


def count_attention_and_norms() -> None:
    """From now on mmengine's counts, of multiplications with an addition each, include

    - `scaled_dot_product_attention`: its two matrix products, without softmax as for attention written out;
    - what token normalizers do to each element, as many as mmengine counts for `layer_norm`. The weighted sums of DTN
      over the grid are einsums, which it counts itself.
    """
    complexity_analysis._DEFAULT_SUPPORTED_FLOP_OPS.update(
        {'aten::scaled_dot_product_attention': _attention, 'aten::rsqrt': _normalization}
    )


def _attention(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Queries (..., L, D), keys (..., S, D), values (..., S, V): L S (D + V) of each leading index."""
    query, key, value = (get_shape(tensor) for tensor in inputs[:3])
    return math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _normalization(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """(x - mean) * rsqrt(var) * weight + bias, the one place where the normalizers written out call `rsqrt`."""
    return 5 * math.prod(get_shape(outputs[0]))
