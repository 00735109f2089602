"""Milliseconds per image of a detector's forward pass on a CPU, in batches of images of one size, in turns.

Without reading, resizing and writing. Ratios are medians over the rounds, relative to batches of one image.

    python benchmarks/batches.py WORK_DIR|MODEL.onnx FOLDER --size 320 416 [--threads 1]
"""

import argparse
import os
import statistics
import time
from pathlib import Path

import cv2

from tokennorm import Detector
from tokennorm.inference.runtime import ExportedDetector

SIZES = 1, 2, 4, 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument('detector')
    parser.add_argument('folder')
    parser.add_argument('--size', type=int, nargs=2, required=True, help='height and width')
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--rounds', type=int, default=9)
    args = parser.parse_args()
    os.environ['OMP_NUM_THREADS'] = str(args.threads)
    files = sorted(Path(args.folder).iterdir())[: SIZES[-1]]
    images = [cv2.resize(cv2.imread(str(path)), args.size[::-1]) for path in files]
    batches = {size: [images[i : i + size] for i in range(0, len(images), size)] for size in SIZES}
    if args.detector.endswith(('.onnx', '.xml')):
        exported = ExportedDetector(args.detector, args.threads)
        run, prepare = exported.run, exported.inputs_of
    else:
        import torch

        torch.set_num_threads(args.threads)
        inferencer = Detector(args.detector, device='cpu')._inferencer
        run, prepare = inferencer.forward, lambda batch: next(iter(inferencer.preprocess(batch, len(batch))))[1]
    inputs = {size: [prepare(batch) for batch in batches[size]] for size in SIZES}
    times = {size: [] for size in SIZES}
    for _ in range(args.rounds + 1):
        for size in SIZES:
            start = time.perf_counter(), time.process_time()
            for one in inputs[size]:
                run(one)
            times[size].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    for size in SIZES:
        print(f'batches of {size}', end='')
        for clock, name in enumerate(('wall', 'processor')):
            seconds, of_one = ([pair[clock] for pair in times[n][1:]] for n in (size, 1))
            ratio = statistics.median(a / b for a, b in zip(seconds, of_one, strict=True))
            print(f'  {name} {1000 * statistics.median(seconds) / len(images):6.1f} ms {ratio:5.2f}', end='')
        print(flush=True)


if __name__ == '__main__':
    main()
