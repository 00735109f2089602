"""The demo: trains a RetinaNet on a small PVT with DTN and DPN on generated images, prints COCO AP, draws predictions.

`--control` trains the same detector with LayerNorm and the plain stem. Rerun it to continue an interrupted run.
"""

import json
from pathlib import Path

import cv2
import numpy as np
import torch
from mmengine.runner import Runner

from experiments.shapes import make_shapes_dataset
from tokennorm.base.messages import UserError, user_errors
from tokennorm.checkpoints.finding import newest_checkpoint
from tokennorm.cli.command import Parser, command
from tokennorm.config.reading import read_config
from tokennorm.datasets.drawing import tile
from tokennorm.engine.runner import build_runner, run
from tokennorm.images.drawing import color_of, draw
from tokennorm.plan.hooks import use_training_hooks
from tokennorm.plan.recipe import use_coco_metric

MINUTES = 5  # 900 iterations of 0.27 s, and the images
NUM_IMAGES = 8  # in predictions.png
ENLARGED = 3  # times, so that labels are legible
SCORE_THR = 0.5  # detections with a lower score are not drawn


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('--control', action='store_true', help='LayerNorm and the plain stem instead of DTN and DPN')
    args = parser.parse_args(argv)
    name = 'retinanet_pvt-mini_fpn_shapes' if args.control else 'retinanet_pvt-mini-dtn-dpn_fpn_shapes'
    cfg = read_config(f'demo/{name}')
    use_coco_metric(cfg)
    use_training_hooks(cfg)
    torch.set_num_threads(1)  # other numbers of threads round differently
    work_dir = Path(cfg.work_dir)
    if (work_dir / 'predictions.png').exists():
        print(f'Trained already; remove {cfg.work_dir} to train again.')
    else:
        with user_errors(FileExistsError):
            make_shapes_dataset(Path(cfg.data_root), image_size=cfg.image_scale[0])
        latest = newest_checkpoint(work_dir)
        start = '' if latest is None else f', continuing from {latest.name}'
        print(
            f'Training {cfg.max_epochs} epochs into {cfg.work_dir}{start}: about {MINUTES} minutes of two quiet '
            'cores; "eta" in the log is for this machine.'
        )
        cfg.resume = True
        cfg.train_dataloader.update(num_workers=1, persistent_workers=True)  # on the second core
        runner = build_runner(cfg, splits=('train', 'val'))
        run(runner, how_to_continue='the same command continues from the latest.')
        cv2.imwrite(str(work_dir / 'predictions.png'), draw_predictions(runner))
    if not (work_dir / 'report.json').is_file():
        raise UserError(f'{work_dir} has no report of its training run; remove it and rerun')
    ap = json.loads((work_dir / 'report.json').read_text(encoding='utf-8'))['results']['bbox']['summary']
    print(f'\nCOCO AP at the end: {100 * ap["mAP"]:.1f}, AP50: {100 * ap["mAP_50"]:.1f}')
    for file in ('report.html', 'predictions.png'):
        print(f'- {work_dir / file}')


@torch.no_grad()
def draw_predictions(runner: Runner) -> np.ndarray:
    """A contact sheet of ground truth and predictions side by side, two pairs per row, (H, W, 3) uint8 in BGR."""
    loader, names = runner.val_dataloader, runner.val_dataloader.dataset.metainfo['classes']
    runner.model.eval()
    pairs = []
    for index in np.linspace(0, len(loader.dataset) - 1, NUM_IMAGES, dtype=int):
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
