"""The main job on generated data: trains a RetinaNet on a reduced PVT with DTN and DPN, prints COCO AP, draws
predictions.

`python tools/demo.py` takes some minutes on two CPU cores. With `--control` the same is trained with LayerNorm and the
plain stem. An interrupted training goes on when the same command is given again.
"""

import argparse
from pathlib import Path

from mmengine.config import Config

from tokennorm.cli import build_runner
from tokennorm.datasets import make_shapes_dataset

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / 'configs' / 'demo'


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--control', action='store_true', help='LayerNorm and the plain stem instead of DTN and DPN')
    args = parser.parse_args(argv)
    name = 'retinanet_pvt-mini_fpn_shapes.py' if args.control else 'retinanet_pvt-mini-dtn-dpn_fpn_shapes.py'
    cfg = Config.fromfile(CONFIGS / name)
    make_shapes_dataset(Path(cfg.data_root))
    summary = Path(cfg.work_dir) / 'summary.md'
    cfg.resume = not summary.exists()
    summary.unlink(missing_ok=True)
    build_runner(cfg, splits=('train', 'val')).train()
    print(f'\n{summary.read_text()}')


if __name__ == '__main__':
    main()
