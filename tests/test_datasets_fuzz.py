"""Whatever an annotation file says, it is trained on and evaluated, or an error of ours names it."""

import contextlib
import copy
import io
import json
import random
import traceback
from collections import Counter

import cv2
import numpy as np
import pytest
from mmdet.evaluation import CocoMetric
from mmdet.registry import DATASETS
from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.logging import MMLogger

from tests.helpers.coco_files import HEIGHT, WIDTH, sound_content
from tokennorm.datasets.coco.folder import find_coco_splits
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.engine.checks import check_config_data
from tokennorm.engine.data import use_coco_splits
from tokennorm.engine.hooks.data_errors import DataError, prepare_data

VALUES = [
    None, True, False, 0, 1, -1, 2, 3, 0.5, -0.0, 24, 32, 1e-9, 1e9, -1e9, 1e300, 2**31, 2**63, -(2**63), 10**30,
    10**400, float('nan'), float('inf'), float('-inf'), '', 'a', '1', 'cat', 'dog', '\0', '\ud800', 'x' * 5000, '/',
    '52203', 'P', 'o', '0' * 50, '\u00e9', [], [[]], {}, [1], [1, 2, 3, 4], [[1, 2]], [[1, 2, 3, 4, 5, 6]], [None] * 6,
    [1, 2, float('nan'), 4], [0, 0, 1e300, 5], [[1, 2, 3, 4, 5, float('nan')]], [[1e9, 0, 3, 1e9, 5, 6]], [['a'] * 6],
    dict(size=[HEIGHT, WIDTH], counts=[HEIGHT * WIDTH]), dict(size=[HEIGHT, WIDTH], counts=[5, 2**31]),
    dict(size=[HEIGHT, WIDTH], counts=[10**9, -(10**9) + HEIGHT * WIDTH]), dict(size=[HEIGHT, WIDTH], counts='PPPPPP'),
    dict(size=[10**6, 10**6], counts=[10**12]), dict(size=[HEIGHT], counts='a'), dict(counts='a'),
]  # fmt: skip


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp('fuzz')
    (root / 'annotations').mkdir()
    for split, num_images in (('train', 3), ('val', 3)):
        (root / 'images' / split).mkdir(parents=True)
        for i in range(num_images):
            pixels = np.random.default_rng([i, split == 'val']).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
            cv2.imwrite(str(root / 'images' / split / f'{i}.png'), pixels)
    register_all_modules(init_default_scope=True)
    MMLogger.get_current_instance().setLevel('ERROR')
    return root


def mutate(content, rng):
    """The bytes of a damaged annotation file."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        content = mutate_entry(content, rng)
    text = json.dumps(content).encode()
    return mutate_bytes(text, rng) if rng.random() < 0.15 else text


def mutate_entry(content, rng):
    """Walks down to some entry and changes it."""
    parent, key, node = None, None, content
    while isinstance(node, dict | list) and node and (parent is None or rng.random() < 0.93):
        parent, key = node, rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        node = parent[key]
    changes = ['drop', 'replace', 'replace', 'double', 'nest', 'swap', 'text', 'deep']
    change = rng.choice([*changes, *['scale'] * 6] if isinstance(node, int | float) else changes)
    if parent is None:
        return rng.choice(VALUES)
    if change == 'drop':
        del parent[key]
    elif change == 'double' and isinstance(parent, list):
        parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(node))
    elif change == 'nest':
        parent[key] = rng.choice([[node], {'a': node}, [node, node]])
    elif change == 'scale':
        factors = [-1, 0, 1, 1, 2, 3, 100, 10**6, 10**20] + [0.5, 1.5] * isinstance(node, float)
        parent[key] = node * rng.choice(factors) + rng.choice([0, 0, 1, -1])
    elif change == 'swap':
        other = rng.choice(list(parent)) if isinstance(parent, dict) else rng.randrange(len(parent))
        parent[key], parent[other] = parent[other], parent[key]
    elif change == 'text':
        parent[key] = (
            str(node) if not isinstance(node, str) else ''.join(rng.sample(node, len(node)))[: rng.randrange(9)]
        )
    elif change == 'deep':
        for _ in range(rng.choice([3, 100, 400])):
            node = [node]
        parent[key] = node
    else:
        parent[key] = copy.deepcopy(rng.choice(VALUES))
    return content


def mutate_bytes(text, rng):
    start = rng.randrange(len(text))
    end = min(len(text), start + rng.choice([1, 1, 4, 50]))
    return rng.choice(
        [
            text[:start],
            text[:start] + text[end:],
            text[:start] + bytes(rng.randrange(256) for _ in range(end - start)) + text[end:],
            text[:end] + text[start:],
            text[:start]
            + rng.choice([b'[', b'}', b'"', b',', b'NaN', b'-', b'1e999', b'9' * 5000, b'\\ud800'])
            + text[end:],
            b'[' * 3000 + text,
        ]
    )


def config(folder, with_mask):
    """As much of a config as the data needs."""
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations', with_bbox=True, with_mask=with_mask),
        dict(type='PackDetInputs'),
    ]
    cfg = dict(
        model=dict(roi_head=dict(bbox_head=dict(num_classes=2)), test_cfg=dict(max_per_img=100)),
        train_cfg=dict(max_epochs=1),
    )
    for split in ('train', 'val'):
        dataset = dict(
            type='CocoDataset', data_root=str(folder), ann_file=f'annotations/{split}.json', pipeline=pipeline,
            data_prefix=dict(img=f'images/{split}/'),
            serialize_data=False, metainfo=dict(classes=('cat', 'dog')), test_mode=split != 'train',
        )  # fmt: skip
        if split == 'train':
            dataset['filter_cfg'] = dict(filter_empty_gt=True, min_size=8)
        cfg[f'{split}_dataloader'] = dict(dataset=dataset)
    cfg['val_evaluator'] = dict(
        type='CocoMetric',
        ann_file=f'{folder}/annotations/val.json',
        metric=['bbox', 'segm'] if with_mask else 'bbox',
    )
    return Config(cfg)


def use(folder, route, with_mask):
    """Loads the data as a training run does. Returns 'refused' if the checker stops it."""
    cfg = config(folder, with_mask)
    if route == '--data':
        splits = find_coco_splits(folder)
        found = inspect_splits(splits)
        if found.errors:
            assert all(error.startswith(('train: ', 'val: ')) for error in found.errors)
            print(found)
            return 'refused'
        use_coco_splits(cfg, splits, found)
    check_config_data(cfg, ('train', 'val'))
    num_classes = cfg.model.roi_head.bbox_head.num_classes
    for split in ('train', 'val'):
        dataset = DATASETS.build(cfg[f'{split}_dataloader'].dataset)
        assert len(dataset)
        samples = [prepare_data(dataset, i)['data_samples'] for i in range(len(dataset))]
        for sample in samples:
            check_instances(sample.gt_instances, num_classes, with_mask)
    evaluate(cfg, dataset, samples, with_mask)
    return 'used'


def check_instances(instances, num_classes, with_mask):
    """What heads ask of ground truth."""
    boxes = instances.bboxes.tensor
    assert boxes.isfinite().all()
    assert (boxes[:, 2:] - boxes[:, :2] > 0).all()
    assert ((instances.labels >= 0) & (instances.labels < num_classes)).all()
    if with_mask:
        assert instances.masks.masks.shape == (len(boxes), HEIGHT, WIDTH)
        assert set(np.unique(instances.masks.masks)) <= {0, 1}


def evaluate(cfg, dataset, samples, with_mask):
    """AP of the ground truth itself."""
    metric = CocoMetric(**{k: v for k, v in cfg.val_evaluator.items() if k != 'type'})
    metric.dataset_meta = dataset.metainfo
    for sample in samples:
        instances = sample.gt_instances
        found = dict(bboxes=instances.bboxes.tensor, labels=instances.labels, scores=instances.labels.float() * 0 + 0.9)
        if with_mask:
            found['masks'] = instances.masks.to_tensor(bool, 'cpu')
        metric.process({}, [dict(img_id=sample.img_id, ori_shape=sample.ori_shape, pred_instances=found)])
    values = metric.evaluate(size=len(samples))
    assert -1 <= values['coco/bbox_mAP'] <= 1


def outcome(folder, route, with_mask):
    """'used', 'refused', or the class of an error of ours; any other error goes through."""
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            result = use(folder, route, with_mask)
        printed.getvalue().encode()
        return result
    except (ValueError, FileNotFoundError, DataError) as error:
        *_, (last, _) = traceback.walk_tb(error.__traceback__)
        if '/tokennorm/' not in last.f_code.co_filename:
            raise
        named = (str(folder), '(image id ' if isinstance(error, DataError) else '--data: ')
        if not any(words in str(error) for words in named):
            raise AssertionError(f'no file is named: {error}') from error
        return type(error).__name__


def run_cases(folder, seed, count):
    rng = random.Random(seed)
    sound = {split: json.dumps(sound_content(3)) for split in ('train', 'val')}
    outcomes = Counter()
    for case in range(count):
        split = rng.choice(['train', 'val'])
        for name, text in sound.items():
            (folder / 'annotations' / f'{name}.json').write_text(text)
        damaged = mutate(json.loads(sound[split]), rng)
        (folder / 'annotations' / f'{split}.json').write_bytes(damaged)
        route, with_mask = rng.choice(['--data', 'config']), rng.random() < 0.7
        try:
            outcomes[outcome(folder, route, with_mask)] += 1
        except Exception as error:
            raise AssertionError(f'case {case} of seed {seed}, {split}, {route}, {with_mask=}: {damaged!r}') from error
    return outcomes


@pytest.mark.parametrize('with_mask', [False, True])
@pytest.mark.parametrize('route', ['--data', 'config'])
def test_the_sound_file_is_used(folder, route, with_mask):
    for split in ('train', 'val'):
        (folder / 'annotations' / f'{split}.json').write_text(json.dumps(sound_content(3)))
    assert outcome(folder, route, with_mask) == 'used'


def test_a_hundred_damaged_files(folder):
    outcomes = run_cases(folder, seed=0, count=100)
    assert outcomes.total() == 100
    assert min(outcomes[kind] for kind in ('used', 'refused', 'ValueError')) > 10, outcomes


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(1, 6))
def test_thousands_of_damaged_files(folder, seed):
    assert run_cases(folder, seed, count=2000).total() == 2000
