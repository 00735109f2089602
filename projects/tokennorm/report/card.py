"""Writes the model card, README.md, of a published or an exported detector."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokennorm.base.files import write_atomically
from tokennorm.base.messages import counted, shorten
from tokennorm.version import __version__

_MARK = '<!-- tokennorm: card of {} -->'
_SUMMARY = {'mAP': 'AP', 'mAP_50': 'AP50', 'mAP_75': 'AP75'}
_KINDS = {'bbox': 'box', 'segm': 'mask'}
_NUMPY = """\
import json

import cv2
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession('{name}')
texts = session.get_modelmeta().custom_metadata_map
keys = ('classes', 'resize', 'color', 'thresholds')
classes, resize, color, thresholds = (json.loads(texts.get(f'tokennorm.{{key}}', 'null')) for key in keys)
lowest = np.array(thresholds or [0.3] * len(classes))  # recommended score of each class, if the file has them

image = cv2.imread('image.jpg')
height, width = image.shape[:2]
{resize}
pixels = cv2.resize(image, size[::-1])
if color == 'RGB':
    pixels = pixels[..., ::-1]
inputs = dict(
    images=pixels.transpose(2, 0, 1)[None].astype(np.float32),  # 0 to 255: normalization is inside the file
    sizes=np.array([size], dtype=np.int64),
)
boxes, scores, labels = (found[0] for found in session.run(['boxes', 'scores', 'labels'], inputs))
keep = (labels >= 0) & (scores >= lowest[labels])
boxes = boxes[keep] * np.array([width / size[1], height / size[0]] * 2)  # left, top, right, bottom
print(boxes, scores[keep], [classes[label] for label in labels[keep]])
"""  # that of docs/guides/export.md
_KEEP_RATIO = """\
scale = min(max(resize['scale']) / max(height, width), min(resize['scale']) / min(height, width))
size = int(height * scale + 0.5), int(width * scale + 0.5)"""
_FIXED = "size = resize['scale'][1], resize['scale'][0]"
_SAME = 'size = height, width'


@dataclass(frozen=True)
class Card:
    """Everything that a model card says about a detector or a classifier."""

    file: Path  # the published or exported file
    classes: Sequence[str]
    config: str = ''  # its name
    license: str = ''  # of the weights
    report: Mapping[str, Any] | None = None  # `report.json` of the training run
    metadata: Mapping[str, Any] | None = None  # of an exported file, read from JSON
    measured: str = ''  # AP of the file itself


def report_of(checkpoint: str | Path) -> dict[str, Any] | None:
    """Returns the `report.json` next to a checkpoint; None without one, or if it is that of another checkpoint."""
    path = Path(checkpoint).with_name('report.json')
    try:
        numbers = json.loads(path.read_text(encoding='utf-8'))
        return numbers if Path(numbers['checkpoint']).name == Path(checkpoint).name else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_card(card: Card) -> Path:
    """Writes the card next to its file and returns its path.

    It is README.md, or NAME.README.md where a README.md of something else is there.
    """
    mark, path = _MARK.format(card.file.name), card.file.with_name('README.md')
    if path.exists() and mark not in path.read_text(encoding='utf-8', errors='replace'):
        path = card.file.with_name(f'{card.file.stem}.README.md')
    write_atomically(path, '\n'.join([*_head(card), mark, '', *_sections(card)]).encode('utf-8', 'backslashreplace'))
    return path


def _head(card: Card) -> list[str]:
    """The lines that Hugging Face reads."""
    detects = card.metadata is not None or card.report is not None
    lines = ['---', 'library_name: tokennorm', *['pipeline_tag: object-detection'] * detects]
    lines += [f'license: {card.license.lower()}'] if card.license else []
    return [*lines, '---']


def _sections(card: Card) -> list[str]:
    lines = [f'# {card.file.stem}', '']
    lines += [f'`{card.file.name}`, written by TokenNorm {__version__}.', '', '## Classes', '']
    lines += [f'{len(card.classes)}: {shorten(list(card.classes), most=100)}' if card.classes else 'Not stated.', '']
    lines += ['## Accuracy', '', *_accuracy(card), '', '## Data and recipe', '', *_recipe(card), '']
    license_line = f'Weights: {card.license}.' if card.license else 'Weights: not stated; --license NAME states it.'
    lines += ['## License', '', f'{license_line} The weights that training began with may have terms of their own.', '']
    return [*lines, '## Use', '', *_use(card), '']


def _accuracy(card: Card) -> list[str]:
    lines = []
    if card.report is not None:
        data = card.report['data']
        columns = [f'{_KINDS[kind]} {name}' for kind in card.report['results'] for name in _SUMMARY.values()]
        values = [
            '-' if (value := result['summary'][key]) < 0 else f'{100 * value:.1f}'
            for result in card.report['results'].values()
            for key in _SUMMARY
        ]
        images, objects = counted(data['images'], 'validation image'), counted(data['objects'], 'object')
        lines = [f'COCO AP, from 0 to 100, on {images} with {objects}:', '']
        lines += [f'| {" | ".join(columns)} |', f'|{"---|" * len(columns)}', f'| {" | ".join(values)} |']
    if card.measured:
        lines += ['', card.measured] if lines else [card.measured]
    return lines or ['Not measured.']


def _recipe(card: Card) -> list[str]:
    report = card.report or {}
    lines = [f'- Data: {report["title"]}'] if report.get('title') else []
    name = report.get('config_name') or card.config
    lines += [f'- Config: {name}'] if name else []
    lines += [f'- {report["training"]}'] if report.get('training') else []
    if report.get('results'):
        lines += _thresholds(list(report['results'].values())[-1])
    return lines or ['Not stated.']


def _thresholds(result: Mapping[str, Any]) -> list[str]:
    """The recommended threshold, with its precision and recall."""
    if result.get('best') is None:
        return []
    best = result['best']
    figures = f'precision {100 * best["precision"]:.1f}, recall {100 * best["recall"]:.1f}'
    return [f'- Best F1 at a score of {best["threshold"]:.3f}: {figures}']


def _use(card: Card) -> list[str]:
    name, lines = card.file.name, []
    if card.metadata is not None:
        lines += [*(f'- {line}' for line in card.metadata['use'].splitlines()), '']
        if card.file.suffix == '.onnx':
            lines += [
                'With onnxruntime, NumPy and OpenCV only:',
                '',
                '```python',
                numpy_lines(card).rstrip(),
                '```',
                '',
            ]
    lines += ['With TokenNorm:', '', '```bash', f'tokennorm predict {name} photo.jpg', '```']
    if card.metadata is None:
        lines += ['', '```python', 'import tokennorm', f"detector = tokennorm.Detector('{name}')", '```']
    return lines


def numpy_lines(card: Card) -> str:
    """Returns a program that detects objects in a photograph with an ONNX file, without TokenNorm or PyTorch."""
    rule = (card.metadata or {}).get('resize')
    resize = _SAME if rule is None else _KEEP_RATIO if rule['keep_ratio'] else _FIXED
    return _NUMPY.format(name=card.file.name, resize=resize)
