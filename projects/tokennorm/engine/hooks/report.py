"""Leaves pictures of a finished training in its work folder: curves, predictions beside ground truth, a summary."""

import json
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from mmengine.dist import master_only
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner
from mmengine.structures import InstanceData

from tokennorm.datasets.drawing import tile
from tokennorm.registry import HOOKS

Curve = dict[int, float]  # value at each training iteration


@HOOKS.register_module()
class ReportHook(Hook):
    """Writes into the work folder after training:

    - `curves.png`: loss and the validation metric against iterations,
    - `predictions.png`: images of the validation set, ground truth at the left and predictions at the right of each,
    - `summary.md`: the metric at the end and at its best, and where everything lies.

    Args:
        metric: Validation metric, as the evaluator names it.
        num_images: Images in `predictions.png`.
        score_thr: Detections with a lower score are not drawn.
        min_side: Images are enlarged to this short side before drawing, so that labels are legible, in pixels.
    """

    priority = 'LOWEST'

    def __init__(
        self,
        metric: str = 'coco/bbox_mAP',
        num_images: int = 8,
        score_thr: float = 0.5,
        min_side: int = 384,
    ) -> None:
        self.metric = metric
        self.num_images = num_images
        self.score_thr = score_thr
        self.min_side = min_side

    @master_only
    def after_train(self, runner: Runner) -> None:
        """Writes the three files; mmengine calls it when training ends."""
        folder = Path(runner.work_dir)
        epoch_length = len(runner.train_dataloader) if isinstance(runner.train_loop, EpochBasedTrainLoop) else 1
        loss, values = read_scalars(folder, self.metric, epoch_length, runner.iter)
        plot_curves(folder / 'curves.png', loss, values, self.metric)
        cv2.imwrite(str(folder / 'predictions.png'), self.draw_predictions(runner))
        (folder / 'summary.md').write_text(summarise(runner, loss, values, self.metric))
        runner.logger.info(f'Summary, curves and predictions are in {folder}')

    @torch.no_grad()
    def draw_predictions(self, runner: Runner) -> np.ndarray:
        """A sheet of ground truth and prediction pairs, two pairs a row, (H, W, 3) uint8 in BGR."""
        loader, visualizer = runner.val_dataloader, runner.visualizer
        visualizer.dataset_meta = loader.dataset.metainfo
        runner.model.eval()
        pairs = []
        count = min(self.num_images, len(loader.dataset))
        for index in np.linspace(0, len(loader.dataset) - 1, count, dtype=int):
            (sample,) = runner.model.test_step(loader.collate_fn([loader.dataset[int(index)]]))
            image = cv2.cvtColor(cv2.imread(sample.img_path), cv2.COLOR_BGR2RGB)
            factor = max(1.0, self.min_side / min(image.shape[:2]))
            image = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
            sample = sample.cpu()
            for instances in (sample.gt_instances, sample.pred_instances):
                enlarge(instances, factor, image.shape[:2])
            visualizer.add_datasample('report', image, sample, pred_score_thr=self.score_thr)
            pairs.append(visualizer.get_image())
        return cv2.cvtColor(tile(pairs, columns=2), cv2.COLOR_RGB2BGR)


def enlarge(instances: InstanceData, factor: float, shape: tuple[int, int]) -> None:
    """Scales boxes and masks of instances by `factor`, to an image of `shape` (height, width), in place."""
    instances.bboxes = instances.bboxes * factor
    if 'masks' not in instances:
        return
    if isinstance(instances.masks, torch.Tensor):
        instances.masks = F.interpolate(instances.masks[None].float(), size=shape)[0].bool()
    else:
        instances.masks = instances.masks.resize(shape)


def read_scalars(folder: Path, metric: str, epoch_length: int, last: int) -> tuple[Curve, Curve]:
    """Loss and metric at each logged iteration, from the scalars that mmengine's LocalVisBackend wrote.

    A resumed training has a file for each start. Of an iteration that several files have the latest counts.

    Args:
        folder: Work folder of the training.
        metric: Name of the metric.
        epoch_length: Iterations between two steps of the metric: those of an epoch, or 1.
        last: Iterations beyond this one are of an earlier, longer training in the same folder, and left out.
    """
    loss, values = {}, {}
    for path in sorted(folder.glob('*/vis_data/scalars.json')):
        for line in path.read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:  # cut off when a training was killed
                continue
            if 'loss' in entry:
                loss[entry['step']] = entry['loss']
            elif metric in entry:
                values[entry['step'] * epoch_length] = entry[metric]
    return tuple({i: v for i, v in sorted(curve.items()) if i <= last} for curve in (loss, values))


def plot_curves(path: Path, loss: Curve, values: Curve, metric: str) -> None:
    """Loss and metric against iterations, one above the other."""
    figure = Figure(figsize=(8, 6), layout='constrained')
    axes = figure.subplots(2, sharex=True)
    axes[0].plot(*_points(loss), color='C0')
    axes[0].set_ylabel('training loss')
    axes[1].plot(*_points(values), color='C1', marker='o', markersize=4)
    axes[1].set(ylabel=metric, xlabel='iteration', ylim=(0, None))
    for ax in axes:
        ax.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def _points(curve: Curve) -> tuple[list[int], list[float]]:
    return list(curve), list(curve.values())


def summarise(runner: Runner, loss: Curve, values: Curve, metric: str) -> str:
    """The summary's Markdown."""
    lines = [f'# {runner.experiment_name}', '', f'{runner.iter} iterations, {runner.epoch} epochs', '']
    if loss:
        lines += [f'- training loss at the end: {list(loss.values())[-1]:.3f}']
    if values:
        best = max(values, key=values.get)
        lines += [
            f'- {metric} at the end: {list(values.values())[-1]:.3f}',
            f'- {metric} at its best: {values[best]:.3f}, at iteration {best}',
        ]
    lines += ['', 'Files:', '']
    checkpoints = sorted(path.name for path in Path(runner.work_dir).glob('*.pth'))
    for name in ['curves.png', 'predictions.png', *checkpoints]:
        lines.append(f'- {Path(runner.work_dir) / name}')
    return '\n'.join(lines) + '\n'
