"""Writes a detector and its metadata as an ONNX file, a PyTorch program (.pt2) or an OpenVINO model (.xml and .bin)."""

import io
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from mmdet.utils import get_test_pipeline_cfg
from mmengine.config import Config
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental import _config as symbolic_sizes  # as of torch 2.11; 2.7 has the option, too

from tokennorm.base.console import say
from tokennorm.base.files import write_atomically
from tokennorm.base.messages import UserError
from tokennorm.base.process import without_warnings
from tokennorm.export.dense import UnsupportedError
from tokennorm.export.int8 import calibration_inputs, quantize, quiet_root_logger
from tokennorm.export.nms import nms_keep_in_onnx
from tokennorm.export.whole_detector import SIDE_MULTIPLE, Canvas, WholeDetector
from tokennorm.inference.runtime import FORMAT
from tokennorm.inference.torch_detector import category_ids_of
from tokennorm.registry import type_name
from tokennorm.version import __version__

OPSET = 18
LARGEST_SIDE = 8192  # pixels
# Sides that are not multiples of a stride and give every level of a pyramid, up to a stride of 128, several tokens:
# torch.export would fix a graph to one token where its example has one.
EXAMPLE = (2, 3, 300, 420)
_NO_GEOMETRY = ('LoadImageFromFile', 'LoadImageFromNDArray', 'LoadAnnotations', 'PackDetInputs')


def trace(detector: WholeDetector, dynamic: bool = True, smallest_side: int = 1) -> ExportedProgram:
    """Returns the detector as a graph for batches and images of any size.

    torch.export does not fix the graph to sides from which each feature map has several tokens, but it adds assertions
    that say so. ONNX leaves them out. A program that runs in PyTorch keeps them, and needs a `smallest_side` with
    which they hold, `WholeDetector.smallest_side`.

    `dynamic=False` fixes it to the size of its example, 2 images of 300 x 420 pixels, and takes a fraction of the time.
    With `detector.alone` the batch is one image.
    """
    most, least = detector.canvas or (LARGEST_SIDE, LARGEST_SIDE), max(detector.least_side, smallest_side)
    # Where images are not padded to multiples, no stride divides the sides of the example.
    sides = [min(side, 3 * of_canvas // 4) - (least > 1) for side, of_canvas in zip(EXAMPLE[2:], most, strict=True)]
    images = torch.rand(1 if detector.alone else EXAMPLE[0], 3, *sides) * 255
    sizes = torch.tensor([sides, [side * 4 // 5 for side in sides]])[: len(images)]
    height, width = (Dim(name, min=least, max=side) for name, side in zip(('height', 'width'), most, strict=True))
    batch = {} if detector.alone else {0: Dim('batch', max=1024)}
    any_size = symbolic_sizes.patch(backed_size_oblivious=smallest_side == 1)
    with torch.no_grad(), without_warnings(), any_size:
        try:
            return torch.export.export(
                detector,
                (images, sizes),
                dynamic_shapes=(batch | {2: height, 3: width}, batch) if dynamic else None,
                strict=False,
                prefer_deferred_runtime_asserts_over_guards=True,
            )
        except torch._dynamo.exc.UserError as error:  # small sides would take another way through the model
            advice = '; its data_preprocessor may need pad_size_divisor=32' * (detector.multiple % SIDE_MULTIPLE > 0)
            raise UserError(
                'this detector cannot be exported for images of any size, since small ones are computed in another '
                f'way{advice}'
            ) from error
        except Exception as error:
            reason = str(error).strip().partition('\n')[0]
            if detector.by_mmdet:
                name = type(detector.detector).__name__
                raise UnsupportedError(
                    f'{name} cannot be exported: its prediction cannot be traced: {reason}'
                ) from error
            if isinstance(error, AssertionError):  # of a backbone for one size
                raise UserError(
                    f'this detector cannot be exported for images of any size: {reason}. If its backbone is a ViT '
                    'of timm, it needs timm_args=dict(dynamic_img_size=True)'
                ) from error
            raise


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Shows a step and its time: on a terminal while it runs, elsewhere a line when it begins and one with the time."""
    columns = TextColumn('{task.description}', markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=sys.stdout, force_jupyter=False)) as progress:
        if not progress.console.is_terminal:
            say(f'{step} ...')
        task = progress.add_task(step, total=1)
        yield
        progress.advance(task)


def export_detector(
    detector: WholeDetector, metadata: Mapping[str, str], path: Path, calibration: Sequence[Path] = ()
) -> None:
    """Writes a detector to a file, in INT8 if there are image files for calibration; shows each step and its time.

    Nothing is left behind if that fails.
    """
    if path.suffix == '.pt2':
        content = io.BytesIO()
        with timed('Tracing the detector'):
            program = trace(detector, smallest_side=detector.smallest_side)
        metadata = {**metadata, 'tokennorm.smallest_side': str(detector.smallest_side)}
        torch.export.save(program, content, extra_files=metadata)
        write_atomically(path, content.getvalue())
        return
    with timed('Tracing the detector'):
        program = trace(detector)
    with timed('Converting it to ONNX'):
        content = to_onnx(program, detector, metadata)
    if calibration:
        with tempfile.TemporaryDirectory() as folder:
            exact = Path(folder) / 'float32.onnx'
            exact.write_bytes(content)
            with timed('Quantizing it'):
                content = quantize(exact, calibration_inputs(exact, calibration))
    if path.suffix == '.onnx':
        write_atomically(path, content)
    else:
        with timed('Converting it to OpenVINO'):
            write_openvino(content, metadata, path)


def check_packages(suffix: str, int8: bool = False) -> None:
    """Raises `UserError` with the pip line if the packages for a format are not installed."""
    needed = {'.onnx': ['onnx', 'onnxscript'], '.xml': ['onnx', 'onnxscript', 'openvino']}.get(suffix, [])
    missing = [name for name in needed + ['onnxruntime'] * int8 if find_spec(name) is None]
    if missing:
        raise UserError(f'{suffix} files need {", ".join(missing)}: pip install {" ".join(missing)}')


def to_onnx(program: ExportedProgram, detector: WholeDetector, metadata: Mapping[str, str]) -> bytes:
    """Returns a traced detector as the content of an ONNX file, which cuts one image out of its canvas if it has to."""
    try:
        with without_warnings(), quiet_root_logger():
            converted = torch.onnx.export(
                program,
                dynamo=True,
                input_names=['images', 'sizes'],
                output_names=list(detector.outputs),
                opset_version=OPSET,
                optimize=True,
                custom_translation_table={torch.ops.tokennorm.nms_keep.default: nms_keep_in_onnx},
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error).partition('## Exception summary')[2].strip() or str(error)
        raise UserError(f'this detector cannot be written as ONNX: {reason.splitlines()[0]}') from error
    model = converted.model_proto
    for entry in [model.graph, *model.graph.node, *model.graph.value_info]:
        del entry.metadata_props[:]  # stack traces, which are larger than a small model and have paths in them
    _name_dimensions(model.graph)
    if detector.alone:
        _cut_to_image(model.graph)
    model.producer_name = 'tokennorm'
    model.doc_string = json.loads(metadata['tokennorm.use'])
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    return model.SerializeToString()


def _name_dimensions(graph: Any) -> None:
    """Names the dynamic dimensions of an ONNX graph: batch, height, width and detections, also in formulas of them."""
    images, boxes = graph.input[0], graph.output[0]
    named = {}
    for value, axes in ((images, ('batch', 'channels', 'height', 'width')), (boxes, ('batch', 'detections', 'sides'))):
        for dim, name in zip(value.type.tensor_type.shape.dim, axes, strict=True):
            named.setdefault(dim.dim_param, name)
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                text = named.get(dim.dim_param, dim.dim_param)
                dim.dim_param = re.sub(r'\bs\d+\b', lambda symbol: named.get(symbol[0], symbol[0]), text)


def _cut_to_image(graph: Any) -> None:
    """Adds to an ONNX graph for one image that it cuts the image out of its canvas; a size of 0 is the whole side."""
    from onnx import TensorProto, helper

    for name, values in dict(axes=[2, 3], zeros=[0, 0], first=[0]).items():
        graph.initializer.append(helper.make_tensor(f'cut_{name}', TensorProto.INT64, [len(values)], values))
    for node in graph.node:
        node.input[:] = ['cut_images' if name == 'images' else name for name in node.input]
    added = [
        ('Shape', ['images'], 'canvas', dict(start=2)),
        ('Squeeze', ['sizes', 'cut_first'], 'sizes', {}),
        ('Greater', ['cut_sizes', 'cut_zeros'], 'given', {}),
        ('Where', ['cut_given', 'cut_sizes', 'cut_canvas'], 'sides', {}),
        ('Slice', ['images', 'cut_zeros', 'cut_sides', 'cut_axes'], 'images', {}),
    ]
    for kind, taken, given, more in reversed(added):
        graph.node.insert(0, helper.make_node(kind, taken, [f'cut_{given}'], **more))
    del graph.value_info[:]  # sides of the canvas, which now are those of the image


def write_openvino(content: bytes, metadata: Mapping[str, str], path: Path) -> None:
    """Writes the content of an ONNX file as an OpenVINO model."""
    import openvino

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        onnx_file, saved = Path(folder) / 'model.onnx', Path(folder) / path.name
        onnx_file.write_bytes(content)
        model = openvino.convert_model(onnx_file)
        model.set_rt_info(json.loads(metadata['tokennorm.use']), ['description'])
        for key, value in metadata.items():
            model.set_rt_info(value, key.split('.', 1))
        openvino.save_model(model, saved, compress_to_fp16=False)
        openvino.Core().read_model(saved)  # raises if the disk was full, which OpenVINO does not report
        saved.with_suffix('.bin').replace(path.with_suffix('.bin'))
        saved.replace(path)


# ---- what an exported file says about itself, so that a program without the config can prepare images for it ----


def resize_rule(cfg: Config) -> dict[str, Any] | None:
    """Returns how the test pipeline of a config resizes images, as `runtime.resized_shape` reads it."""
    rule = None
    for step in get_test_pipeline_cfg(cfg):
        kind = type_name(step)
        if kind == 'Resize' and step.get('scale') is not None and rule is None:
            if (how := (step.get('interpolation', 'bilinear'), step.get('backend', 'cv2'))) != ('bilinear', 'cv2'):
                raise UnsupportedError(
                    f"the test pipeline resizes with {' of '.join(how)}; supported is 'bilinear' with the backend 'cv2'"
                )
            scale = [step['scale']] * 2 if isinstance(step['scale'], int) else list(step['scale'])
            rule = dict(scale=scale, keep_ratio=bool(step.get('keep_ratio', False)))
        elif kind not in (*_NO_GEOMETRY, 'Pad'):
            raise UnsupportedError(
                f'the test pipeline has {kind}, which an exported detector cannot repeat; supported is one Resize with '
                'a scale, and one Pad to a size after it'
            )
    return rule


def canvas_of(cfg: Config) -> Canvas | None:
    """Returns the height and width to which the test pipeline of a config pads images, and the value per channel."""
    canvas = None
    for step in get_test_pipeline_cfg(cfg):
        if type_name(step) != 'Pad':
            continue
        size, rule = step.get('size'), resize_rule(cfg)
        if step.get('pad_to_square') and rule and rule['keep_ratio'] and rule['scale'][0] == rule['scale'][1]:
            size = rule['scale']
        if canvas or size is None or step.get('size_divisor') or step.get('padding_mode', 'constant') != 'constant':
            raise UnsupportedError(f'the test pipeline has {dict(step)}; supported is one Pad to a size, with a value')
        value = step.get('pad_val', 0)
        value = value.get('img', 0) if isinstance(value, Mapping) else value
        canvas = (size[1], size[0], list(value) if isinstance(value, Sequence) else [value])
    return canvas


def describe(
    detector: WholeDetector,
    cfg: Config,
    dataset_meta: Mapping[str, Any],
    config_name: str,
    license_name: str,
    thresholds: Sequence[float] | None = None,
) -> dict[str, str]:
    """Returns the metadata of an exported detector, each value as JSON; `thresholds` has a score per class."""
    model = detector.detector
    head_cfg = model.roi_head.test_cfg if detector.two_stages else model.bbox_head.test_cfg
    content = dict(
        format=FORMAT,
        classes=list(dataset_meta['classes']),
        category_ids=category_ids_of(dataset_meta),
        color=detector.color,
        normalization='inside',
        mean=[0.0] * 3,  # what is left to subtract and to divide by: nothing
        std=[1.0] * 3,
        resize=resize_rule(cfg),
        smallest_side=detector.least_side,
        batch_size=1 if detector.alone else None,
        score_threshold=head_cfg.get('score_thr', 0),
        max_detections=head_cfg.get('max_per_img'),
        thresholds=None if thresholds is None else list(thresholds),
        mask_threshold=head_cfg.get('mask_thr_binary', 0.5) if detector.with_masks else None,
        mask_stride=detector.mask_stride,
        config=config_name,
        license=license_name,
        versions=dict(tokennorm=__version__, torch=str(torch.__version__)),
    )
    content['use'] = how_to_use(content)
    return {f'tokennorm.{key}': json.dumps(value) for key, value in content.items()}


def how_to_use(content: Mapping[str, Any]) -> str:
    """Returns six lines for who has only the file, from its metadata."""
    rule, classes = content['resize'], len(content['classes'])
    if rule is None:
        resized = 'as it is'
    elif rule['keep_ratio']:
        long, short = max(rule['scale']), min(rule['scale'])
        turned = f' or {short} x {long}' if short < long else ''
        resized = f'resized in proportion, to the largest size within {long} x {short}{turned} pixels'
    else:
        resized = f'resized to a width of {rule["scale"][0]} and a height of {rule["scale"][1]} pixels'
    batch = 'batch' if content['batch_size'] is None else str(content['batch_size'])
    padding = (
        'pad those of unequal sizes at the right and bottom'
        if batch == 'batch'
        else 'the file cuts it out of a larger canvas, in whose upper left corner it is'
    )
    masks = '' if content['mask_threshold'] is None else '; masks: probability of the object within each box'
    if stride := content.get('mask_stride'):
        masks = f'; mask_logits: logits of each object for {stride} x {stride} pixels each, from the upper left corner'
    lines = [
        f'images: float32 ({batch}, 3, height, width), {content["color"]}, 0 to 255, each image {resized} (bilinear).',
        'Normalization is inside: apply no mean, no standard deviation and no division by 255. Padding is not needed.',
        f'sizes: int64 ({batch}, 2), height and width of each image; {padding}.',
        f'boxes: left, top, right, bottom in pixels of the resized image, after non-maximum suppression{masks}.',
        'scores: from 0 to 1, highest first; 0 and label -1 where nothing was found. Keep those above a threshold.',
        f'labels: index into the {classes} names of tokennorm.classes in the metadata, whose values are JSON.',
    ]
    return '\n'.join(lines)
