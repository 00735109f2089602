"""The main job on generated data: trains a RetinaNet on a reduced PVT with DTN and DPN, prints COCO AP, draws
predictions.

With `--control` the same is trained with LayerNorm and the plain stem. An interrupted training goes on when the same
command is given again.
"""

import argparse
from pathlib import Path

from mmengine.config import Config

from tokennorm.checkpoints.reading import noted_checkpoint
from tokennorm.datasets import make_shapes_dataset
from tokennorm.engine.runner import build_runner, train

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / 'configs' / 'demo'


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--control', action='store_true', help='LayerNorm and the plain stem instead of DTN and DPN')
    args = parser.parse_args(argv)
    name = 'retinanet_pvt-mini_fpn_shapes.py' if args.control else 'retinanet_pvt-mini-dtn-dpn_fpn_shapes.py'
    cfg = Config.fromfile(CONFIGS / name)
    summary = Path(cfg.work_dir) / 'summary.md'
    if summary.exists():
        print(f'Trained already; remove {cfg.work_dir} to train again.')
    else:
        try:
            make_shapes_dataset(Path(cfg.data_root), image_size=cfg.image_scale[0])
        except FileExistsError as error:
            raise SystemExit(f'error: {error}') from None
        noted = noted_checkpoint(Path(cfg.work_dir))
        start = '' if noted is None else f', going on from {noted.name}'
        print(
            f'Training {cfg.max_epochs} epochs into {cfg.work_dir}{start}: minutes on two cores, see "eta" in the log.'
        )
        cfg.resume = True
        train(build_runner(cfg, splits=('train', 'val')), to_go_on='the same command goes on from the latest.')
    print(f'\n{summary.read_text()}')


if __name__ == '__main__':
    main()
