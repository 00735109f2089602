"""Reports on a finished training run: the HTML page, curves, predictions next to ground truth, a summary."""

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
from tokennorm.report.from_runner import report_on
from tokennorm.report.scalars import Curve, read_scalars

NUM_IMAGES = 8  # in predictions.png
SCORE_THR = 0.5  # detections with a lower score are not drawn there
MIN_SIDE = 384  # images are enlarged to this short side before drawing, so that labels are legible, in pixels


@HOOKS.register_module()
class ReportHook(Hook):
    """Writes into the work directory after training:

    - `report.html`: the report of the last validation (`tokennorm.report.page`), and its numbers beside it,
    - `curves.png`: loss and the validation metric against iterations,
    - `predictions.png`: images of the validation set, ground truth at the left and predictions at the right of each,
    - `summary.md`: the metric at the end and at its best, and where everything lies.

    A file that cannot be made is left out with a warning of one line: the training run has its checkpoints already.

    Args:
        metric: Validation metric of curve and summary, as the evaluator names it.
    """

    priority = 'LOWEST'

    def __init__(self, metric: str = 'coco/bbox_mAP') -> None:
        self.metric = metric
        self.begin = -1

    def before_train(self, runner: Runner) -> None:
        """Notes the iteration that a resumed run begins with."""
        self.begin = runner.iter

    @master_only
    def after_train(self, runner: Runner) -> None:
        """Writes the files; mmengine calls it when training ends."""
        folder = Path(runner.work_dir)
        by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
        end = f'end of training, epoch {runner.epoch}' if by_epoch else f'end of training, iteration {runner.iter}'
        for name, write in {
            'report.html': lambda path: report_on(runner, 'val', path, checkpoint=end),
            'predictions.png': lambda path: cv2.imwrite(str(path), draw_predictions(runner)),
            'curves.png': lambda path: plot_curves(path, *_curves(runner, self.metric), self.metric),
            'summary.md': lambda path: path.write_text(summarise(runner, *_curves(runner, self.metric), self.metric)),
        }.items():
            if name == 'report.html' and runner.iter == self.begin:
                continue  # the run was complete before it was resumed: nothing was validated
            try:
                write(folder / name)
            except Exception as error:
                text = ' '.join(str(error).split())
                runner.logger.warning(f'{folder / name} was not written ({type(error).__name__}: {text:.200})')
        runner.logger.info(f'Report, summary, curves and predictions are in {folder}')


def _curves(runner: Runner, metric: str) -> tuple[Curve, Curve]:
    """Returns loss and metric against iterations."""
    scalars = read_scalars(runner.work_dir)
    epoch_length = len(runner.train_dataloader) if isinstance(runner.train_loop, EpochBasedTrainLoop) else 1
    values = {step * epoch_length: value for step, value in scalars.get(metric, {}).items()}
    return scalars.get('loss', {}), values


@torch.no_grad()
def draw_predictions(runner: Runner) -> np.ndarray:
    """A contact sheet of ground truth and predictions side by side, two pairs per row, (H, W, 3) uint8 in BGR."""
    loader, visualizer = runner.val_dataloader, runner.visualizer
    visualizer.dataset_meta = loader.dataset.metainfo
    runner.model.eval()
    pairs = []
    count = min(NUM_IMAGES, len(loader.dataset))
    for index in np.linspace(0, len(loader.dataset) - 1, count, dtype=int):
        (sample,) = runner.model.test_step(loader.collate_fn([loader.dataset[int(index)]]))
        image = cv2.cvtColor(cv2.imread(sample.img_path), cv2.COLOR_BGR2RGB)
        factor = max(1.0, MIN_SIDE / min(image.shape[:2]))
        image = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
        sample = sample.cpu()
        for instances in (sample.gt_instances, sample.pred_instances):
            enlarge(instances, factor, image.shape[:2])
        visualizer.add_datasample('report', image, sample, pred_score_thr=SCORE_THR)
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


def plot_curves(path: Path, loss: Curve, values: Curve, metric: str) -> None:
    """Loss and metric against iterations, one above the other."""
    figure = Figure(figsize=(8, 6), layout='constrained')
    axes = figure.subplots(2, sharex=True)
    axes[0].plot(list(loss), list(loss.values()), color='C0')
    axes[0].set_ylabel('training loss')
    axes[1].plot(list(values), list(values.values()), color='C1', marker='o', markersize=4)
    axes[1].set(ylabel=metric, xlabel='iteration', ylim=(0, None))
    for ax in axes:
        ax.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


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
    folder = Path(runner.work_dir)
    checkpoints = sorted(path.name for path in folder.glob('*.pth'))
    files = [name for name in ('report.html', 'curves.png', 'predictions.png') if (folder / name).is_file()]
    for name in [*files, *checkpoints]:
        lines.append(f'- {folder / name}')
    return '\n'.join(lines) + '\n'
