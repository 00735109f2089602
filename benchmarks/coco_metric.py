"""Times COCO evaluation: tokennorm.CocoMetric with hotcoco against mmdet's CocoMetric with pycocotools.

    python benchmarks/coco_metric.py [--images 2000] [--detections 100]

Both metrics get the same random boxes: ten objects per image of eight classes, 85% of them detected with jitter, and
random boxes up to the given number of detections. The time is that of `evaluate`, loading of the detections included.
CPU time is that of all threads of the process; other programs disturb it less than wall time.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measuring import print_table
from mmdet.evaluation import CocoMetric as MMDetCocoMetric

from tokennorm.evaluation.coco_metric import CocoMetric

CLASSES = 8
OBJECTS = 10
WIDTH, HEIGHT = 640, 480


def random_boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    """(count, 4) boxes x, y, width, height with log-uniform sides of 10 to 200 pixels."""
    sizes = np.exp(rng.uniform(np.log(10), np.log(200), (count, 2)))
    return np.column_stack([rng.uniform(0, (WIDTH, HEIGHT) - sizes), sizes])


def make_data(num_images: int, num_detections: int) -> tuple[dict, list[dict]]:
    """Returns the content of an annotation file and mmdet's data samples."""
    rng = np.random.default_rng(0)
    images, annotations, samples = [], [], []
    for image_id in range(1, num_images + 1):
        images.append(dict(id=image_id, file_name=f'{image_id}.jpg', width=WIDTH, height=HEIGHT))
        objects, labels = random_boxes(rng, OBJECTS), rng.integers(CLASSES, size=OBJECTS)
        for box, label in zip(objects.tolist(), labels.tolist(), strict=True):
            entry = dict(id=len(annotations) + 1, image_id=image_id, category_id=label, bbox=box, iscrowd=0)
            annotations.append(entry | dict(area=box[2] * box[3]))
        found = rng.random(OBJECTS) < 0.85
        near = objects[found] + rng.normal(size=(found.sum(), 4)) * 0.08 * np.tile(objects[found, 2:], 2)
        others = num_detections - len(near)
        boxes = np.concatenate([near, random_boxes(rng, others)])
        boxes[:, 2:] += boxes[:, :2]
        instances = dict(
            bboxes=torch.tensor(boxes, dtype=torch.float32),
            labels=torch.tensor(np.append(labels[found], rng.integers(CLASSES, size=others))),
            scores=torch.tensor(np.append(rng.beta(5, 2, len(near)), rng.beta(1, 6, others)), dtype=torch.float32),
        )
        samples.append(dict(img_id=image_id, ori_shape=(HEIGHT, WIDTH), pred_instances=instances))
    categories = [dict(id=i, name=f'class {i}') for i in range(CLASSES)]
    return dict(images=images, annotations=annotations, categories=categories), samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--images', type=int, default=2000)
    parser.add_argument('--detections', type=int, default=100, help='per image')
    args = parser.parse_args()
    content, samples = make_data(args.images, args.detections)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        ann_file = Path(folder) / 'val.json'
        ann_file.write_text(json.dumps(content))
        for name, metric_type in (('hotcoco', CocoMetric), ('pycocotools', MMDetCocoMetric)):
            metric = metric_type(ann_file=str(ann_file))
            metric.dataset_meta = dict(classes=[category['name'] for category in content['categories']])
            metric.process({}, samples)
            start, processor = time.perf_counter(), time.process_time()
            values = metric.evaluate(size=len(samples))
            row = {'evaluation': name, 'wall s': f'{time.perf_counter() - start:.1f}'}
            row |= {'CPU s': f'{time.process_time() - processor:.1f}', 'box AP': f'{values["coco/bbox_mAP"]:.3f}'}
            rows.append(row)
    print_table(rows)


if __name__ == '__main__':
    main()
