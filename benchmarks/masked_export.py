"""Time of an exported detector whose file masks the padding, relative to one that does not, in onnxruntime.

    tokennorm export RUN masked.onnx
    tokennorm export RUN plain.onnx --cfg-options model.type=RetinaNet
    python benchmarks/masked_export.py plain.onnx masked.onnx

One thread; the files take turns. Printed are medians of processor time, and of the ratio with its 10th and 90th
percentile, for an image that fills its batch, one with a little padding, and one on a large canvas.
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
        plain, masked = 1e3 * np.median(times, axis=0)
        low, ratio, high = np.percentile(times[:, 1] / times[:, 0], (10, 50, 90))
        print(f'{batch}, image {height, width}: {plain:.1f} and {masked:.1f} ms, {ratio:.2f} ({low:.2f} to {high:.2f})')


def seconds(session: onnxruntime.InferenceSession, feed: dict[str, np.ndarray]) -> float:
    start = time.process_time()
    session.run(None, feed)
    return time.process_time() - start


if __name__ == '__main__':
    main(*sys.argv[1:])
