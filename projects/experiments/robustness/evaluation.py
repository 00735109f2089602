"""Prepares the test loop of a config for corrupted images, and runs it per corruption and severity."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from mmengine.runner import Runner

from experiments.robustness.corruptions import SMALLEST, CorruptImage, corrupt
from experiments.robustness.results import CLEAN, Cell
from tokennorm.config.tree import evaluators, innermost_datasets
from tokennorm.registry import type_name

ACCURACY = 'accuracy/top1'


def check_coco_metric(cfg: Config) -> None:
    """Checks that a detector's config is evaluated by COCO's metric only."""
    kinds = [type_name(evaluator) for evaluator in evaluators(cfg, 'test')]
    if kinds != ['CocoMetric']:
        raise ValueError(
            f'{cfg.filename}: its model is not an ImageClassifier, and its test_evaluator {kinds} is not one CocoMetric'
        )


def choose_images(cfg: Config, number: int | None, subset: Sequence[int] | None) -> None:
    """Restricts the test dataset to images with labels of a subset, and to a number of these, evenly spaced.

    If the dataset has `indices`, only these images are used.
    """
    if number is None and subset is None:
        return
    dataset_cfg = _one_dataset(cfg)
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    dataset = DATASETS.build(dict(dataset_cfg, indices=None, pipeline=[], serialize_data=False))
    chosen = dataset_cfg.get('indices')
    if chosen is None:
        chosen = slice(None)
    elif isinstance(chosen, int):  # mmengine's number of the first images, or below 0 of the last
        chosen = slice(chosen) if chosen >= 0 else slice(chosen, None)
    kept = np.arange(len(dataset))[chosen]
    if subset is not None:
        kept = kept[np.isin([dataset.get_data_info(i)['gt_label'] for i in kept], subset)]
    if not len(kept):
        raise ValueError('the data has no image' + (' of the classes of --classes' if subset is not None else ''))
    if number is not None:
        kept = kept[np.linspace(0, len(kept) - 1, min(number, len(kept)), dtype=int)]
    dataset_cfg['indices'] = kept.tolist()


def _one_dataset(cfg: Config) -> dict[str, Any]:
    dataset = cfg['test_dataloader']['dataset']
    if next(innermost_datasets(dataset)) is not dataset:
        raise ValueError(f'test_dataloader.dataset is a {dataset["type"]} of others; it must be one dataset')
    return dataset


class CorruptedTest:
    """Test loop of a runner, with a step in its data pipeline that corrupts images.

    A detector's images are corrupted when they are read, as by Michaelis et al. A classifier's images are corrupted
    after resizing and cropping, as in ImageNet-C.

    Args:
        runner: A built runner with one test dataset. Its checkpoint is loaded here.
        classifier: Whether the model is a classifier.
        published: Folder of ImageNet-C's files; None corrupts on the fly.
    """

    def __init__(self, runner: Runner, classifier: bool, published: Path | None = None) -> None:
        self.runner = runner
        self.loop = runner.test_loop
        self.dataset = self.loop.dataloader.dataset
        self.steps = self.dataset.pipeline.transforms
        names = [type(step).__name__ for step in self.steps]
        found = [i for i, n in enumerate(names) if (n == 'PackInputs' if classifier else n.startswith('LoadImage'))]
        if not found:
            wanted = 'PackInputs' if classifier else 'LoadImageFromFile'
            raise ValueError(
                f'test_dataloader.dataset.pipeline has no {wanted}, where images are corrupted: {", ".join(names)}'
            )
        self.position = found[0] if classifier else found[0] + 1
        self.corrupt = CorruptImage(published)
        self.steps.insert(self.position, self.corrupt)
        infos = [self.dataset.get_data_info(i) for i in range(len(self.dataset))]
        self.nothing_found: dict[str, float] = {}
        if not classifier:
            (metric,) = self.loop.evaluator.metrics
            metric.img_ids = [info['img_id'] for info in infos]  # of other images no object is missed
            self.nothing_found = {f'coco/{kind}_mAP': 0.0 for kind in metric.metrics}
        self.images = [(info['img_path'].replace('\\', '/').split('/')[-2:], _truth(info)) for info in infos]
        runner.call_hook('before_run')
        runner.load_or_resume()

    def run(self, cell: Cell) -> dict[str, Any]:
        """Returns the evaluator's metrics under one corruption and severity, or on clean images."""
        self.corrupt.cell = None if cell == CLEAN else cell
        if cell[0] == 'glass_blur' and self.corrupt.published is None:  # numba compiles it once, not in every worker
            corrupt(np.zeros((SMALLEST, SMALLEST, 3), np.uint8), *cell, seed=0)
        with contextlib.redirect_stdout(io.StringIO()):  # COCO's evaluation prints many lines
            return self.nothing_found | self.loop.run()  # CocoMetric has no metrics without any detection

    def first_image(self) -> tuple[np.ndarray, str]:
        """Returns the first image before corruption, (H, W, 3) uint8 BGR, and its path."""
        results = self.dataset.get_data_info(0)
        for step in self.steps[: self.position]:
            results = step(results)
        return results['img'], results['img_path']


def _truth(info: Mapping[str, Any]) -> Any:
    """The ground truth of an image: its label, or boxes with labels."""
    if 'gt_label' in info:
        return int(info['gt_label'])
    return [(instance['bbox_label'], list(instance['bbox']), instance['ignore_flag']) for instance in info['instances']]
