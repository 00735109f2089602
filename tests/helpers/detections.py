"""Ground truth and detections."""

import copy

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from tokennorm.evaluation.results import CocoResults

SIDE = 400

CLASSES = {2: 'cat', 5: 'dog', 9: 'cow'}
LONG_NAMES = [
    'erythrocyte with an abnormal, eccentric pale area',
    'Pseudopseudohypoparathyroidism_of_unknown_provenance',
    'x',
]


def make_truth(num_images=30, seed=0):
    """Objects on a grid of 4 x 4 places, so that no two overlap."""
    rng = np.random.default_rng(seed)
    images = [dict(id=i, file_name=f'{i}.jpg', width=SIDE, height=SIDE) for i in range(1, num_images + 1)]
    annotations = []
    for image in images:
        for place in rng.choice(16, 6, replace=False):
            width, height = rng.uniform(30, 60, 2).tolist()
            box = [float(place % 4 * 100 + 5), float(place // 4 * 100 + 5), width, height]
            label = int(rng.choice(list(CLASSES)))
            entry = dict(image_id=image['id'], category_id=label, bbox=box, area=width * height, iscrowd=0)
            annotations.append(dict(entry, id=len(annotations) + 1))
    return dict(images=images, annotations=annotations, categories=[dict(id=i, name=n) for i, n in CLASSES.items()])


def perfect(truth, score=0.9):
    """A detection for each object."""
    return CocoResults(np.array([[a['image_id'], *a['bbox'], score, a['category_id']] for a in truth['annotations']]))


def noisy(truth, seed=1, duplicates=0.2):
    """Detections with every type of error, and distinct scores."""
    rng = np.random.default_rng(seed)
    rows = []
    for a in truth['annotations']:
        x, y, w, h = a['bbox']
        for _ in range(rng.choice([0, 1, 2], p=[0.1, 0.9 - duplicates, duplicates])):
            shift = rng.choice([0.02, 0.5]) * w * rng.normal()
            category = a['category_id'] if rng.random() < 0.85 else int(rng.choice(list(CLASSES)))
            rows.append([a['image_id'], x + shift, y, w, h, rng.beta(5, 2), category])
    for image in truth['images']:
        x, y = rng.uniform(0, SIDE - 50, 2)
        rows.append([image['id'], x, y, 50, 40, rng.beta(2, 5), int(rng.choice(list(CLASSES)))])
    return CocoResults(np.array(rows, float))


def wrong_classes(truth, count):
    for annotation in truth['annotations'][:count]:
        annotation['category_id'] = {2: 5, 5: 9, 9: 2}[annotation['category_id']]


def shifted_boxes(truth, count):
    """By half the width: IoU 1/3."""
    for annotation in truth['annotations'][:count]:
        annotation['bbox'][0] += annotation['bbox'][2] / 2


def removed_labels(truth, count):
    del truth['annotations'][:count]


def pycocotools_precision(truth, detections, category_ids):
    """Precision (IoU thresholds, recalls, classes, areas, limits) by pycocotools."""
    coco = COCO()
    coco.dataset = copy.deepcopy(truth)
    coco.createIndex()
    evaluation = COCOeval(coco, coco.loadRes(detections.results()), 'bbox')
    evaluation.params.catIds = category_ids
    evaluation.evaluate()
    evaluation.accumulate()
    return evaluation.eval['precision']


def best_threshold(truth, detections, category_id):
    """The score with the best F1 of a class at IoU 0.5, with precision, recall and F1: each score is tried."""
    objects = {}
    for a in truth['annotations']:
        if a['category_id'] == category_id:
            objects.setdefault(a['image_id'], []).append(a['bbox'])
    rows = sorted((row for row in detections.table.tolist() if row[6] == category_id), key=lambda row: -row[5])
    count = sum(map(len, objects.values()))
    best, hits = (0, 0, 0, 0), 0
    for i, (image_id, *box, score, _) in enumerate(rows, 1):
        for other in objects.get(image_id, []):
            if overlap(box, other) >= 0.5:
                objects[image_id].remove(other)
                hits += 1
                break
        best = max(best, (2 * hits / (i + count), score, hits / i, hits / count), key=lambda point: point[0])
    return dict(threshold=best[1], precision=best[2], recall=best[3], f1=best[0])


def overlap(a, b):
    """IoU of boxes x, y, width, height."""
    shared = [max(min(a[i] + a[i + 2], b[i] + b[i + 2]) - max(a[i], b[i]), 0) for i in (0, 1)]
    common = shared[0] * shared[1]
    return common / (a[2] * a[3] + b[2] * b[3] - common)
