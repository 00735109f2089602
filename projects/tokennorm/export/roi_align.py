"""RoIAlign of torchvision as an ONNX operator."""

from typing import Any


def roi_align_in_onnx(
    x: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    """Returns `torchvision.ops.roi_align` as ONNX's RoiAlign: maps (B, C, H, W), rois (K, 5) -> (K, C, h, w)."""
    from onnxscript import opset18 as op

    images = op.Cast(op.Gather(rois, op.Constant(value_int=0), axis=1), to=7)
    boxes = op.Gather(rois, op.Constant(value_ints=[1, 2, 3, 4]), axis=1)
    return op.RoiAlign(
        x,
        boxes,
        images,
        mode='avg',
        coordinate_transformation_mode='half_pixel' if aligned else 'output_half_pixel',
        output_height=pooled_height,
        output_width=pooled_width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=spatial_scale,
    )
