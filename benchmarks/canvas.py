"""Detections of images alone and on a larger canvas, padded at the right and the bottom: do they change?

    python benchmarks/canvas.py WORK_DIR DATA [--exported FILE.onnx] [--canvas 640] [--detector tokennorm.RetinaNet]

Prints, for PyTorch and an exported file, AP alone and on the canvas, the largest difference of a score and of a box's
side of detections with a score of 0.3 or more, and precision at the recommended threshold.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tokennorm
from tokennorm.datasets.discovery import find_splits
from tokennorm.export.measure import largest_changes, measure
from tokennorm.images.pixels import as_pixels
from tokennorm.inference.runtime import ExportedDetector


class ExportedOnCanvas(ExportedDetector):
    """An exported detector whose input is always a canvas, with the sizes of the images."""

    canvas = 0

    def inputs_of(self, images: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        inputs = super().inputs_of(images)
        pixels = inputs['images']
        more = [(0, 0), (0, 0), *((0, max(0, self.canvas - side)) for side in pixels.shape[2:])]
        return inputs | dict(images=np.pad(pixels, more))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('work_dir', type=Path)
    parser.add_argument('data', type=Path)
    parser.add_argument('--exported', type=Path)
    parser.add_argument('--canvas', type=int, default=640, help='side in pixels; default: %(default)s')
    parser.add_argument('--detector', help='model.type, where it is not that of the run')
    args = parser.parse_args()
    split = find_splits(args.data, ('val',))['val']
    pairs = {}
    options = {} if args.detector is None else {'model.type': args.detector}
    alone, padded = (tokennorm.Detector(args.work_dir, device='cpu', options=options) for _ in range(2))
    padded.model.data_preprocessor.pad_size_divisor = args.canvas  # pads to a multiple of it, and notes the sizes
    pairs['PyTorch'] = alone, padded
    if args.exported is not None:
        ExportedOnCanvas.canvas = args.canvas
        pairs['exported'] = ExportedDetector(args.exported), ExportedOnCanvas(args.exported)
    print('| | AP alone | AP on the canvas | difference of a score | of a box, pixels | detections of one only |')
    print('|---|---|---|---|---|---|')
    for name, (first, second) in pairs.items():
        aps = [100 * next(iter(one.aps.values())) for one in measure([first, second], split)]
        rows = []
        for image in split.content['images']:
            pixels = as_pixels(split.image_dir / image['file_name'])
            rows.append(largest_changes(*(detector.detect([pixels])[0] for detector in (first, second))))
        score, distance, lone = np.array(rows).T
        row = f'{aps[0]:.2f} | {aps[1]:.2f} | {score.max():.3f} | {distance.max():.1f} | {int(lone.sum())}'
        print(f'| {name} | {row} |')


if __name__ == '__main__':
    main()
