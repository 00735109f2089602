"""Scores of a finished run per test image, for intervals that cover the images as well as the runs."""

import base64
import contextlib
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from pycocotools.cocoeval import COCOeval

from experiments.study.plan import Run, Study
from experiments.study.training import is_finished
from tokennorm.base.files import write_atomically
from tokennorm.engine.runner import build_runner

NAME = 'scores.json'
RESAMPLES = 200  # of the test images, for AP


def resamples(images: int, number: int) -> Iterator[np.ndarray]:
    """Yields `number` times indices (images,), drawn with replacement; the same for all runs with as many images."""
    rng = np.random.default_rng(0)
    for _ in range(number):
        yield rng.integers(images, size=images)


def pack(correct: np.ndarray) -> str:
    """Booleans (n,) as base64 of one bit each."""
    return base64.b64encode(np.packbits(correct)).decode()


def unpack(text: str, count: int) -> np.ndarray:
    """Inverse of `pack`: booleans (count,)."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count).astype(bool)


def image_scores(scores: Mapping[str, Any]) -> tuple[np.ndarray, float]:
    """Returns values (K,) whose variance, times a factor, is that of the metric over draws of the test images.

    Of a classifier these are 100 or 0 for each image, and the factor is 1 / images. Of a detector, the AP from 0 to 100
    on resamples of the images, and 1.
    """
    if 'resampled' in scores:
        return 100 * np.array(scores['resampled']), 1.0
    return 100.0 * unpack(scores['correct'], scores['images']), 1 / scores['images']


def score_run(study: Study, run: Run) -> dict[str, Any] | None:
    """Evaluates a finished run on the test images and writes `scores.json` into its folder; None if not finished.

    Returns:
        `images` and `value`, the metric on all of them. A classifier has `correct`, one bit per image; a detector
        `resampled`, the AP on `RESAMPLES` resamples.
    """
    folder = study.folder(run)
    if not is_finished(folder):
        return None
    metric = study.stages[run.stage].metric
    cfg = study.run_config(run)
    cfg.model.backbone.init_cfg = None
    cfg.test_dataloader, cfg.test_evaluator, cfg.test_cfg = cfg.val_dataloader, cfg.val_evaluator, cfg.val_cfg
    cfg.load_from, cfg.log_level, cfg.custom_hooks = str(folder / 'weights.pth'), 'WARNING', []
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
        cfg.work_dir = scratch
        cfg.experiment_name = Path(scratch).name  # mmengine reuses the visualizer of an experiment, with its folder
        scores = _evaluate(cfg, metric, Path(scratch))
    write_atomically(folder / NAME, f'{json.dumps(scores)}\n'.encode())
    return scores


def _evaluate(cfg: Config, metric: str, scratch: Path) -> dict[str, Any]:
    runner = build_runner(cfg, splits=('test',))
    runner.call_hook('before_run')
    runner.load_or_resume()
    if metric.startswith('accuracy'):
        correct = correctness(runner)
        return dict(images=len(correct), value=round(100 * float(correct.mean()), 5), correct=pack(correct))
    (evaluator,) = runner.test_loop.evaluator.metrics
    evaluator.outfile_prefix = str(scratch / 'detections')
    runner.test_loop.run()
    kind = metric.removeprefix('coco/').removesuffix('_mAP')
    truth = evaluator._coco_api
    images = truth.get_img_ids()
    path = scratch / f'detections.{kind}.json'
    if not json.loads(path.read_text(encoding='utf-8')):
        return dict(images=len(images), value=0.0, resampled=[0.0] * RESAMPLES)
    evaluation = COCOeval(truth, truth.loadRes(str(path)), kind)
    evaluation.params.catIds = evaluator.cat_ids
    value, resampled = resampled_ap(evaluation, RESAMPLES)
    return dict(images=len(images), value=round(value, 5), resampled=[round(float(ap), 5) for ap in resampled])


@torch.no_grad()
def correctness(runner: Runner) -> np.ndarray:
    """Whether a classifier's best class is right, (n,), in the order of the dataset."""
    runner.model.eval()
    samples = [sample for batch in runner.test_dataloader for sample in runner.model.test_step(batch)]
    return np.array([bool(sample.pred_score.argmax() == sample.gt_label) for sample in samples])


def resampled_ap(evaluation: COCOeval, number: int) -> tuple[float, np.ndarray]:
    """Returns COCO's AP (at most 100 detections per image) on all images, and on `number` resamples (number,).

    Images are matched once; only the accumulation over images is repeated. An image that a resample holds twice counts
    as two images.
    """
    params = evaluation.params
    params.areaRng, params.areaRngLbl, params.maxDets = params.areaRng[:1], params.areaRngLbl[:1], [100]
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.evaluate()
    images = len(params.imgIds)
    per_class = [evaluation.evalImgs[i : i + images] for i in range(0, len(evaluation.evalImgs), images)]
    params.imgIds = evaluation._paramsEval.imgIds = list(range(images))  # an image may now occur several times
    values = []
    for chosen in (np.arange(images), *resamples(images, number)):
        evaluation.evalImgs = [found[i] for found in per_class for i in chosen]
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation.accumulate()
        precision = evaluation.eval['precision']
        values.append(precision[precision > -1].mean() if (precision > -1).any() else 0.0)
    return float(values[0]), np.array(values[1:])
