"""The demo: trains a RetinaNet on a small PVT with DTN and DPN on generated images, prints COCO AP, draws predictions.

`--control` trains the same detector with LayerNorm and the plain stem. Rerun it to continue an interrupted run.
"""

from pathlib import Path

import torch

from tokennorm.checkpoints.reading import noted_checkpoint
from tokennorm.cli.command import command, make_parser
from tokennorm.config_files import read_config
from tokennorm.datasets import make_shapes_dataset
from tokennorm.engine.build import build_runner
from tokennorm.engine.config import use_report
from tokennorm.engine.training import run
from tokennorm.messages import user_errors

MINUTES = 6  # 1,200 iterations of 0.25 s


@command
def main(argv: list[str]) -> None:
    parser = make_parser(__doc__)
    parser.add_argument('--control', action='store_true', help='LayerNorm and the plain stem instead of DTN and DPN')
    args = parser.parse_args(argv)
    name = 'retinanet_pvt-mini_fpn_shapes' if args.control else 'retinanet_pvt-mini-dtn-dpn_fpn_shapes'
    cfg = read_config(f'demo/{name}')
    use_report(cfg)
    torch.set_num_threads(1)  # other numbers of threads round differently
    summary = Path(cfg.work_dir) / 'summary.md'
    if summary.exists():
        print(f'Trained already; remove {cfg.work_dir} to train again.')
    else:
        with user_errors(FileExistsError):
            make_shapes_dataset(Path(cfg.data_root), image_size=cfg.image_scale[0])
        noted = noted_checkpoint(Path(cfg.work_dir))
        start = '' if noted is None else f', continuing from {noted.name}'
        print(
            f'Training {cfg.max_epochs} epochs into {cfg.work_dir}{start}: about {MINUTES} minutes of one quiet '
            'core; "eta" in the log is for this machine.'
        )
        cfg.resume = True
        run(build_runner(cfg, splits=('train', 'val')), how_to_continue='the same command continues from the latest.')
    print(f'\n{summary.read_text()}')


if __name__ == '__main__':
    main()
