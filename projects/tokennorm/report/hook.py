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
from tokennorm.engine.scalars import Curve, read_scalars
from tokennorm.registry import HOOKS
from tokennorm.report.from_runner import report_on


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
        num_images: Images in `predictions.png`.
        score_thr: Detections with a lower score are not drawn there.
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
        """Writes the files; mmengine calls it when training ends."""
        folder = Path(runner.work_dir)
        for name, write in (
            ('report.html', self._write_report),
            ('predictions.png', self._write_predictions),
            ('curves.png', self._write_curves),
            ('summary.md', self._write_summary),
        ):
            try:
                write(runner, folder / name)
            except Exception as error:
                text = ' '.join(str(error).split())
                runner.logger.warning(f'{folder / name} was not written ({type(error).__name__}: {text:.200})')
        runner.logger.info(f'Report, summary, curves and predictions are in {folder}')

    def _write_report(self, runner: Runner, path: Path) -> None:
        unit = f'epoch {runner.epoch}' if isinstance(runner.train_loop, EpochBasedTrainLoop) else ''
        report_on(runner, 'val', path, checkpoint=f'end of training, {unit or f"iteration {runner.iter}"}')

    def _write_predictions(self, runner: Runner, path: Path) -> None:
        cv2.imwrite(str(path), self.draw_predictions(runner))

    def _write_curves(self, runner: Runner, path: Path) -> None:
        plot_curves(path, *self._curves(runner), self.metric)

    def _write_summary(self, runner: Runner, path: Path) -> None:
        path.write_text(summarise(runner, *self._curves(runner), self.metric))

    def _curves(self, runner: Runner) -> tuple[Curve, Curve]:
        """Returns loss and metric against iterations."""
        scalars = read_scalars(runner.work_dir)
        epoch_length = len(runner.train_dataloader) if isinstance(runner.train_loop, EpochBasedTrainLoop) else 1
        values = {step * epoch_length: value for step, value in scalars.get(self.metric, {}).items()}
        return scalars.get('loss', {}), values

    @torch.no_grad()
    def draw_predictions(self, runner: Runner) -> np.ndarray:
        """A contact sheet of ground truth and predictions side by side, two pairs per row, (H, W, 3) uint8 in BGR."""
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
    folder = Path(runner.work_dir)
    checkpoints = sorted(path.name for path in folder.glob('*.pth'))
    files = [name for name in ('report.html', 'curves.png', 'predictions.png') if (folder / name).is_file()]
    for name in [*files, *checkpoints]:
        lines.append(f'- {folder / name}')
    return '\n'.join(lines) + '\n'
