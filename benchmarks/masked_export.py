"""Time of an exported detector that masks the padding, or cuts its one image out, relative to one that does neither.

    tokennorm export RUN plain.onnx --cfg-options model.type=RetinaNet
    tokennorm export RUN masked.onnx
    tokennorm export RUN one.onnx --batch-size 1
    python benchmarks/masked_export.py plain.onnx masked.onnx one.onnx

One thread of onnxruntime; the files take turns. Printed are the median processor time of the first file, and for each
of the others that of the ratio to it with its 10th and 90th percentile, for an image that fills its batch, one with a
little padding, and one on a large canvas.
"""

import sys
import time

import numpy as np
import onnxruntime

CASES = ((320, 416), (320, 416)), ((320, 416), (310, 400)), ((640, 640), (310, 400))  # batch, image
ROUNDS = 30


def main(*files: str) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    sessions = [onnxruntime.InferenceSession(file, options) for file in files]
    rng = np.random.default_rng(0)
    for batch, (height, width) in CASES:
        images = np.zeros((1, 3, *batch), np.float32)
        images[..., :height, :width] = rng.uniform(0, 255, (1, 3, height, width))
        feed = dict(images=images, sizes=np.array([[height, width]], np.int64))
        times = np.array([[seconds(session, feed) for session in sessions] for _ in range(ROUNDS + 3)])[3:]
        ratios = np.percentile(times[:, 1:] / times[:, :1], (50, 10, 90), axis=0).T
        texts = (f'{ratio:.2f} ({low:.2f} to {high:.2f})' for ratio, low, high in ratios)
        print(f'{batch}, image {height, width}: {1e3 * np.median(times[:, 0]):.1f} ms;', ', '.join(texts))


def seconds(session: onnxruntime.InferenceSession, feed: dict[str, np.ndarray]) -> float:
    start = time.process_time()
    session.run(None, feed)
    return time.process_time() - start


if __name__ == '__main__':
    main(*sys.argv[1:])
