"""Images per second of `tokennorm predict` on a folder, relative to the detector's own speed on prepared batches.

The detector's own speed is that of the forward pass and of non-maximum suppression, without reading, resizing and
writing. All are measured in turns. Three clocks: wall time; the processor time of the main thread, which is the wall
time on a machine with free cores; the processor time of all threads, which is the wall time on one core. With
`--threads 1` the last two do not depend on what else the machine does.

    python benchmarks/predict.py WORK_DIR|MODEL.onnx FOLDER [--threads 1] [--batch-size 8]
"""

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2

from tokennorm import Detector, predict
from tokennorm.inference.runtime import ExportedDetector, batches_of_one_shape

CLOCKS = {'wall': time.perf_counter, 'main thread': time.thread_time, 'all threads': time.process_time}


def prepared(detector: Detector, folder: str, batch_size: int) -> list[Callable[[], object]]:
    """A forward pass for each batch of images of one size in a folder."""
    images = [cv2.imread(str(path)) for path in sorted(Path(folder).iterdir())]
    batches = batches_of_one_shape([image.shape for image in images], batch_size)
    batches = [[images[i] for i in batch] for batch in batches]
    if hasattr(detector, 'inputs_of'):  # an exported file
        inputs = [detector.inputs_of(batch) for batch in batches]
        return [lambda one=one: detector.run(one) for one in inputs]
    inferencer = detector._inferencer
    inputs = [next(iter(inferencer.preprocess(batch, len(batch))))[1] for batch in batches]
    return [lambda one=one: inferencer.forward(one) for one in inputs]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument('detector')
    parser.add_argument('folder')
    parser.add_argument('--threads', type=int)
    parser.add_argument('--batch-size', type=int, default=1)
    parser.add_argument('--rounds', type=int, default=5)
    args = parser.parse_args()
    if args.detector.endswith(('.onnx', '.xml')):
        detector = ExportedDetector(args.detector, args.threads)
    else:
        import torch

        torch.set_num_threads(args.threads or torch.get_num_threads())
        detector = Detector(args.detector, device='cpu')
    passes, count = prepared(detector, args.folder, args.batch_size), len(list(Path(args.folder).iterdir()))
    options = dict(batch_size=args.batch_size, score_thr=0.3)
    with tempfile.TemporaryDirectory() as out:
        contenders = {
            'detector': lambda: [one() for one in passes],
            'json': lambda: predict(detector, args.folder, out=out, no_save_vis=True, **options),
            'json and drawings': lambda: predict(detector, args.folder, out=out, **options),
        }
        times = {name: [] for name in contenders}
        for _ in range(args.rounds + 1):
            for name, run in contenders.items():
                start = [clock() for clock in CLOCKS.values()]
                with contextlib.redirect_stdout(io.StringIO()):
                    run()
                times[name].append([clock() - begin for clock, begin in zip(CLOCKS.values(), start, strict=True)])
    print('images per second, and relative to the detector')
    own_times = list(zip(*times['detector'][1:], strict=True))
    for name, rounds in times.items():
        print(f'{name:<18}', end='')
        for clock, own, seconds in zip(CLOCKS, own_times, zip(*rounds[1:], strict=True), strict=True):
            ratio = statistics.median(a / b for a, b in zip(own, seconds, strict=True))
            print(f'  {clock} {count / statistics.median(seconds):7.2f} {ratio:5.2f}', end='')
        print(flush=True)


if __name__ == '__main__':
    main()
