"""Static INT8 quantization of exported files, with the tools of onnxruntime or OpenVINO and images for calibration."""

import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokennorm.export.runtime import Detector
from tokennorm.export.writing import save_openvino
from tokennorm.files import write_atomically

QUANTIZED = ('Conv', 'MatMul', 'Gemm')
MOST_IMAGES = 100


def calibration_inputs(path: Path, images: Sequence[Path]) -> Iterator[dict[str, np.ndarray]]:
    """Yields the inputs of an exported file for at most 100 of these image files, evenly spaced."""
    detector = Detector(path)
    for i in np.unique(np.linspace(0, len(images) - 1, min(len(images), MOST_IMAGES)).astype(int)):
        yield detector.inputs_of([images[i]])


def quantize(path: Path, images: Sequence[Path]) -> None:
    """Replaces a float32 file of `tokennorm export` by one with convolutions and linear layers in INT8.

    Weights have one scale per output channel, activations one per tensor, from the ranges of their values in the
    calibration images. Products of two activations, as in attention and DTN, and everything after the heads stay
    float32.
    """
    inputs = calibration_inputs(path, images)
    if path.suffix == '.xml':
        save_openvino(quantize_openvino(path, inputs), path)
    else:
        write_atomically(path, quantize_onnx(path, inputs))


def quantize_openvino(path: Path, inputs: Iterable[dict[str, np.ndarray]]) -> Any:
    """Returns the quantized model of an `.xml` file; `quantize` describes it."""
    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    model = openvino.Core().read_model(path)
    fixed: set[str] = set()  # nodes that do not depend on the inputs
    products = []
    for node in model.get_ordered_ops():
        sources = [entry.get_source_output().get_node().get_friendly_name() for entry in node.inputs()]
        if node.get_type_name() != 'Parameter' and fixed.issuperset(sources):
            fixed.add(node.get_friendly_name())
        elif node.get_type_name() == 'MatMul' and fixed.isdisjoint(sources):
            products.append(node.get_friendly_name())
    return nncf.quantize(
        model,
        nncf.Dataset(list(inputs)),
        subset_size=MOST_IMAGES,
        model_type=nncf.ModelType.TRANSFORMER,
        ignored_scope=nncf.IgnoredScope(names=products),
    )


def quantize_onnx(path: Path, inputs: Iterator[dict[str, np.ndarray]]) -> bytes:
    """Returns the content of the quantized ONNX file; `quantize` describes it."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        """Gives one batch after another to onnxruntime."""

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(inputs, None)

    logging.getLogger().setLevel(max(logging.getLogger().level, logging.ERROR))  # it advises what is done here
    with tempfile.TemporaryDirectory() as folder:
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
            nodes_to_exclude=[node.name for node in graph.node if not weights & set(node.input[1:2])],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        quantized = onnx.load(out)
    del quantized.metadata_props[:]
    quantized.metadata_props.extend(onnx.load(path, load_external_data=False).metadata_props)
    return quantized.SerializeToString()
