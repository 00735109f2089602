"""Ground truth and detections."""

import numpy as np

from tokennorm.evaluation.results import CocoResults

SIDE = 400

CLASSES = {2: 'cat', 5: 'dog', 9: 'cow'}


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
