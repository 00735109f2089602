"""Trains a detector: `python tools/train.py CONFIG`, with the arguments of mmdet's tool of that name."""

import argparse
import os
from pathlib import Path

from mmengine.config import Config, DictAction
from mmengine.registry import RUNNERS
from mmengine.runner import Runner


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help='config file')
    parser.add_argument(
        '--work-dir', help='folder for logs and checkpoints (default: work_dirs/ and the name of the config)'
    )
    parser.add_argument('--amp', action='store_true', help='automatic mixed precision')
    parser.add_argument('--auto-scale-lr', action='store_true', help='scale the learning rate to the total batch size')
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        help='go on from this checkpoint, or without a value from the latest one in the work folder',
    )
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, help='entries of the config to set, key=value')
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none', help='job launcher')
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help='set by torch.distributed.launch')
    args = parser.parse_args(argv)
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    return args


def load_config(args: argparse.Namespace) -> Config:
    """The config of the command line, with its overrides and a work folder."""
    cfg = Config.fromfile(args.config)
    cfg.launcher = args.launcher
    if args.cfg_options is not None:
        cfg.merge_from_dict(args.cfg_options)
    if args.work_dir is not None:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = str(Path('work_dirs') / Path(args.config).stem)
    return cfg


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    cfg = load_config(args)
    if args.amp:
        cfg.optim_wrapper.type = 'AmpOptimWrapper'
        cfg.optim_wrapper.loss_scale = 'dynamic'
    if args.auto_scale_lr:
        if 'base_batch_size' not in cfg.get('auto_scale_lr', {}):
            raise SystemExit(f'--auto-scale-lr: {args.config} has no auto_scale_lr.base_batch_size to scale from')
        cfg.auto_scale_lr.enable = True
    if args.resume is not None:
        cfg.resume = True
        cfg.load_from = None if args.resume == 'auto' else args.resume
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    runner.train()


if __name__ == '__main__':
    main()
