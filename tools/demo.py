"""The demo: trains a RetinaNet on a small PVT with DTN and DPN on generated images, prints COCO AP, draws predictions.

`--control` trains the same detector with LayerNorm and the plain stem. Rerun it to continue an interrupted run.
AP varies by rounding with the processor and the number of threads; OMP_NUM_THREADS sets the latter.
"""

import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokennorm.base.console import say
from tokennorm.base.messages import UserError, user_errors
from tokennorm.cli.command import Parser, command
from tokennorm.commands.importing import import_openmmlab

if TYPE_CHECKING:
    import numpy as np
    from mmengine.runner import Runner

TIMED = 20  # iterations from which the time of all is computed
NUM_IMAGES = 8  # in predictions.png
ENLARGED = 3  # times, so that labels are legible
SCORE_THR = 0.5  # detections with a lower score are not drawn


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('--control', action='store_true', help='LayerNorm and the plain stem instead of DTN and DPN')
    args = parser.parse_args(argv)
    norms, name = ('DTN and DPN', 'retinanet_pvt-mini-dtn-dpn_fpn_shapes')
    if args.control:
        norms, name = ('LayerNorm and the plain stem', 'retinanet_pvt-mini_fpn_shapes')
    say(
        f'The demo trains RetinaNet on a small PVT with {norms} to find shapes in generated images, and draws what it '
        f'finds.\nMost of the time is training; how long that takes here is printed after {TIMED} iterations.'
    )
    import_openmmlab()
    work_dir, images = train(f'demo/{name}')
    if not (work_dir / 'report.json').is_file():
        raise UserError(f'{work_dir} has no report of its training run; remove it and rerun')
    ap = json.loads((work_dir / 'report.json').read_text(encoding='utf-8'))['results']['bbox']['summary']
    program = Path(sys.executable).with_name('tokennorm')
    tokennorm = shlex.quote(str(program.relative_to(here) if program.is_relative_to(here := Path.cwd()) else program))
    say(
        f'\nAP {100 * ap["mAP"]:.1f}, AP50 {100 * ap["mAP_50"]:.1f} on images that were not used in training.\n'
        f'Annotations (left) and predictions (right): {work_dir / "predictions.png"}\n'
        f'Report: {work_dir / "report.html"}\n\n'
        'Next, detect objects in a folder of images, or train on your own annotated images:\n'
        f'  {tokennorm} predict {work_dir} {images}\n'
        f'  {tokennorm} train --data DIR'
    )


def train(name: str) -> tuple[Path, Path]:
    """Trains a config, unless it is trained, and returns its work directory and the folder of validation images."""
    import cv2
    from mmengine.hooks import Hook

    from experiments.shapes import make_shapes_dataset
    from tokennorm.checkpoints.locating import newest_checkpoint
    from tokennorm.config.open_config import read_config
    from tokennorm.engine.runner import build_runner, run
    from tokennorm.plan.hooks import use_training_hooks
    from tokennorm.plan.recipe import use_coco_metric

    class TimeHook(Hook):
        def before_train(self, runner: 'Runner') -> None:
            self.begin, self.until = time.time(), runner.iter + TIMED

        def after_train_iter(self, runner: 'Runner', *_: Any, **__: Any) -> None:
            if runner.iter + 1 == self.until:
                took, left = time.time() - self.begin, runner.max_iters - self.until
                minutes = max(1, round(took / TIMED * left / 60))
                runner.logger.info(
                    f'{TIMED} of {runner.max_iters} iterations took {took:.0f} s: about {minutes} min to go'
                )

    cfg = read_config(name)
    use_coco_metric(cfg)
    use_training_hooks(cfg)
    cfg.default_hooks.summary = None
    work_dir, data = Path(cfg.work_dir), Path(cfg.data_root)
    if (work_dir / 'predictions.png').exists():
        say(f'Trained already; remove {work_dir} to train again.')
    else:
        with user_errors(FileExistsError):
            make_shapes_dataset(data, image_size=cfg.image_scale[0])
        latest = newest_checkpoint(work_dir)
        start = '' if latest is None else f', continuing from {latest.name}'
        say(f'Training {cfg.max_epochs} epochs into {work_dir}{start}')
        cfg.resume, cfg.allow = True, ['random-backbone']
        cfg.train_dataloader.update(num_workers=1, persistent_workers=True)  # on the second core
        runner = build_runner(cfg, splits=('train', 'val'))
        runner.register_hook(TimeHook())
        run(runner, how_to_continue='the same command continues from the latest.')
        cv2.imwrite(str(work_dir / 'predictions.png'), draw_predictions(runner))
    return work_dir, data / 'images' / 'val'


def draw_predictions(runner: 'Runner') -> 'np.ndarray':
    """A contact sheet of ground truth and predictions side by side, two pairs per row, (H, W, 3) uint8 in BGR."""
    import cv2
    import numpy as np
    import torch

    from tokennorm.datasets.contact_sheet import tile
    from tokennorm.images.drawing import color_of, draw

    loader, names = runner.val_dataloader, runner.val_dataloader.dataset.metainfo['classes']
    runner.model.eval()
    pairs = []
    for index in np.linspace(0, len(loader.dataset) - 1, NUM_IMAGES, dtype=int):
        with torch.no_grad():
            (sample,) = runner.model.test_step(loader.collate_fn([loader.dataset[int(index)]]))
        image = cv2.imread(sample.img_path)
        image = cv2.resize(image, None, fx=ENLARGED, fy=ENLARGED, interpolation=cv2.INTER_CUBIC)
        true, found = sample.gt_instances.numpy(), sample.pred_instances.cpu().numpy()
        found = found[found.scores >= SCORE_THR]
        found = found[np.argsort(found.scores)]  # the best ones on top
        drawings = []
        for objects, scores in ((true, [''] * len(true)), (found, [f' {score:.2f}' for score in found.scores])):
            texts = [names[label] + score for label, score in zip(objects.labels, scores, strict=True)]
            colors = [color_of(label) for label in objects.labels]
            drawings.append(draw(image, ENLARGED * np.asarray(objects.bboxes), texts, colors))
        pairs.append(np.hstack(drawings))
    return tile(pairs, columns=2)


if __name__ == '__main__':
    main()
