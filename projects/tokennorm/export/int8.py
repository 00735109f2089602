"""Static INT8 quantization of a detector's ONNX graph by onnxruntime, with images for calibration."""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tokennorm.base.process import alone
from tokennorm.inference.runtime import ExportedDetector

QUANTIZED = ('Conv', 'MatMul', 'Gemm')
MOST_IMAGES = 100


def calibration_inputs(path: Path, images: Sequence[Path]) -> Iterator[dict[str, np.ndarray]]:
    """Yields the inputs of an exported file for at most 100 of these image files, evenly spaced."""
    detector = ExportedDetector(path)
    for i in np.unique(np.linspace(0, len(images) - 1, min(len(images), MOST_IMAGES)).astype(int)):
        yield detector.inputs_of([images[i]])


def quantize(path: Path, inputs: Iterator[dict[str, np.ndarray]]) -> bytes:
    """Returns the content of an ONNX file of `tokennorm export` with convolutions and linear layers in INT8.

    Weights have one scale per output channel, activations one per tensor, from the ranges of their values in the
    calibration inputs. Products of two activations, as in attention and DTN, and everything after the heads stay
    float32. So do grouped convolutions, whose channels have ranges of their own.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        """Gives one batch after another to onnxruntime."""

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(inputs, None)

    with quiet_root_logger(), tempfile.TemporaryDirectory() as folder:
        prepared, out = Path(folder) / 'prepared.onnx', Path(folder) / 'int8.onnx'
        quant_pre_process(path, prepared, skip_symbolic_shape=True)
        graph = onnx.load(prepared).graph
        weights = {tensor.name for tensor in graph.initializer}
        quantize_static(
            prepared,
            out,
            Reader(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(QUANTIZED),
            nodes_to_exclude=[
                node.name for node in graph.node if not weights & set(node.input[1:2]) or _is_grouped(node)
            ],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        quantized = onnx.load(out)
    original = onnx.load(path, load_external_data=False)
    del quantized.metadata_props[:]
    quantized.metadata_props.extend(original.metadata_props)
    quantized.doc_string = original.doc_string
    return quantized.SerializeToString()


@contextmanager
def quiet_root_logger() -> Iterator[None]:
    """Advice of onnxruntime and onnxscript about what is done here is dropped; onnxruntime also adds a handler."""
    root = logging.getLogger()
    with alone():
        level, handlers = root.level, [*root.handlers]
        root.setLevel(max(level, logging.ERROR))
        try:
            yield
        finally:
            root.setLevel(level)
            root.handlers[:] = handlers


def _is_grouped(node: Any) -> bool:
    """Returns whether an ONNX node is a convolution of groups of channels, such as a depthwise one."""
    return any(attribute.name == 'group' and attribute.i > 1 for attribute in node.attribute)
