"""FLOPs, as multiply-adds, of whole models at any image size."""

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from tokennorm.config.tree import is_classifier

# Of mmdet's two-stage detectors, per image: proposals, and detections with a mask.
NUM_PROPOSALS, NUM_MASKS = 1000, 100


def count(cfg: Config, size: tuple[int, int]) -> dict[str, int]:
    """Returns the `parameters` of a config's model, and the `flops` of its network for one image (height, width).

    The head of a classifier is left out, as is what `forward_of` leaves out of a detector.
    """
    import_module(f'{cfg.default_scope}.utils').register_all_modules(init_default_scope=False)
    model_cfg = cfg.model.copy()
    model_cfg.backbone.pop('init_cfg', None)
    if is_classifier(cfg):
        model_cfg.pop('train_cfg', None)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(model_cfg).eval().double()
    forward = model.extract_feat if is_classifier(cfg) else forward_of(model)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return dict(parameters=parameters, flops=count_operations(forward, size))


def count_operations(forward: Callable[[Tensor], Any], size: tuple[int, int]) -> int:
    """Returns the multiply-adds of a forward pass for one image.

    Nothing is computed: each operation is only asked for the shape of its result, which takes a second for an image of
    any size. Matrix products, convolutions and attention (without softmax) are counted, and 5 operations per element of
    a norm's input: (x - mean) * rsqrt(var) * weight + bias, as mmengine counts `layer_norm`. Resized maps and batch
    norms are not counted. DTN counts as its sums along the two axes (`tokennorm.ops.dtn`). The parameters of `forward`
    must be float64: DTN then has the form that reads no values. `size` is height and width.
    """
    aten = torch.ops.aten
    norms = (  # the operation that each normalizer calls once, in eval mode, on a tensor as large as its input
        *(aten.native_layer_norm, aten.native_group_norm),
        aten.pow,  # DTN, RMSNorm, PowerNorm: x.square()
        aten.var_mean,  # IN, GN, SN
        aten.linalg_vector_norm,  # ScaleNorm
        aten.tanh,  # DyT
        aten.erf,  # Derf
    )

    def attention(query: Sequence[int], key: Sequence[int], value: Sequence[int], *args: Any, **kwargs: Any) -> int:
        return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])

    formulas = {  # twice: FlopCounterMode counts multiplications and additions
        **dict.fromkeys(norms, lambda x, *args, **kwargs: 2 * 5 * math.prod(x)),
        aten._scaled_dot_product_flash_attention_for_cpu: attention,
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
        for part, number in (('bbox', NUM_PROPOSALS), ('mask', NUM_MASKS)):
            side = getattr(roi_head, f'{part}_roi_extractor').roi_layers[0].output_size
            getattr(roi_head, f'{part}_head')(image.new_zeros(number, maps[0].shape[1], *side))

    return forward
