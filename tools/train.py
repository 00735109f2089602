"""Trains a detector, or a classifier of configs/imagenet: `python tools/train.py CONFIG`, arguments as mmdet's."""

import argparse
from pathlib import Path

from tokennorm.engine.runner import add_runner_arguments, build_runner, load_config, train


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_runner_arguments(parser)
    parser.add_argument('--amp', action='store_true', help='automatic mixed precision')
    parser.add_argument('--auto-scale-lr', action='store_true', help='scale the learning rate to the total batch size')
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        help='go on from this checkpoint, or without a value from the latest one in the work folder',
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    cfg = load_config(args)
    if args.amp:
        cfg.optim_wrapper.type = 'AmpOptimWrapper'
        cfg.optim_wrapper.loss_scale = 'dynamic'
    if args.auto_scale_lr:
        if 'base_batch_size' not in cfg.get('auto_scale_lr', {}):
            raise SystemExit(
                f'error: --auto-scale-lr: {args.config} has no auto_scale_lr.base_batch_size to scale from'
            )
        cfg.auto_scale_lr.enable = True
    if args.resume is not None:
        cfg.resume = True
        if args.resume != 'auto' and not Path(args.resume).is_file():
            raise SystemExit(f'error: --resume: checkpoint {args.resume} is not there')
        cfg.load_from = None if args.resume == 'auto' else args.resume
    train(build_runner(cfg, splits=('train', 'val')), to_go_on='--resume goes on from the latest.')


if __name__ == '__main__':
    main()
