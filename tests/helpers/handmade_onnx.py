"""A file in the format of `tokennorm export`, written by hand: the same two boxes on every image; and a detector."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tokennorm.inference.runtime import ExportedDetector

METADATA = dict(
    format=1,
    classes=['round', 'square'],
    category_ids=[3, 7],
    color='RGB',
    resize=dict(scale=[96, 64], keep_ratio=True),
    smallest_side=1,
    mask_threshold=None,
    use='The same two boxes on every image.',
)
OUTPUTS = dict(  # of each image; the second entry is empty
    boxes=np.array([[[4, 6, 20, 30], [0, 0, 0, 0]]], np.float32),
    scores=np.array([[0.75, 0]], np.float32),
    labels=np.array([[1, -1]], np.int64),
)


def write_handmade(path: Path, opset: int = 18, label: int = 1, **metadata: object) -> Path:
    """Writes the file; `metadata` replaces entries, and None leaves the entry `format` out."""
    nodes = [helper.make_node('Shape', ['images'], ['batch'], start=0, end=1)]
    for name, value in (OUTPUTS | dict(labels=np.array([[label, -1]], np.int64))).items():
        rest = numpy_helper.from_array(np.array(value.shape[1:], np.int64))
        nodes += [
            helper.make_node('Constant', [], [f'{name}_rest'], value=rest),
            helper.make_node('Constant', [], [f'{name}_one'], value=numpy_helper.from_array(value)),
            helper.make_node('Concat', ['batch', f'{name}_rest'], [f'{name}_shape'], axis=0),
            helper.make_node('Expand', [f'{name}_one', f'{name}_shape'], [name]),
        ]
    kinds = dict(boxes=TensorProto.FLOAT, scores=TensorProto.FLOAT, labels=TensorProto.INT64)
    graph = helper.make_graph(
        nodes,
        'handmade',
        [
            helper.make_tensor_value_info('images', TensorProto.FLOAT, ['B', 3, 'H', 'W']),
            helper.make_tensor_value_info('sizes', TensorProto.INT64, ['B', 2]),
        ],
        [helper.make_tensor_value_info(name, kinds[name], ['B', *v.shape[1:]]) for name, v in OUTPUTS.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=10)
    add_metadata(model, **metadata)
    onnx.save(model, path)
    return path


def add_metadata(model: onnx.ModelProto, **metadata: object) -> None:
    """Adds the metadata of the format; arguments replace entries, and None leaves the entry `format` out."""
    for key, value in (METADATA | metadata).items():
        if value is not None or key != 'format':
            model.metadata_props.add(key=f'tokennorm.{key}', value=json.dumps(value))


class SeesPadding(ExportedDetector):
    """Finds a box, of another score and elsewhere if there is padding, and one of a low score."""

    checkpoint = 'detector.onnx'

    def __init__(self, score: float, pixels: float) -> None:
        self._use(METADATA)
        self.score, self.pixels = score, pixels

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        is_padded = inputs['images'].shape[2:] == tuple(2 * inputs['sizes'][0])
        boxes = np.array([[[4, 6, 20, 30 + is_padded * self.pixels], [1 + 50 * is_padded, 2, 3, 4]]], np.float32)
        scores = np.array([[0.75 - is_padded * self.score, 0.2 - 0.2 * is_padded]], np.float32)
        return dict(boxes=boxes, scores=scores, labels=np.array([[1, 0]]))
