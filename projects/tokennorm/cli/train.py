"""Trains a detector, or a classifier of configs/imagenet.

examples:
  tokennorm train --data DIR
  tokennorm train mask-rcnn_pvt-t_fpn_1x_coco --data DIR --epochs 12 --ema
"""

import argparse
import os
from dataclasses import fields

from tokennorm.cli.arguments import add_options_argument, add_training_options, add_work_dir
from tokennorm.cli.command import Parser, add_json, command, show
from tokennorm.commands.train import train_with
from tokennorm.environment import available_cores
from tokennorm.messages import UserError
from tokennorm.plan.options import TrainOptions


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    groups = add_training_options(parser)
    add_work_dir(parser)
    add_options_argument(parser)
    gpus = 'train on N GPUs of this machine, without --launcher'
    groups['hardware'].add_argument('--gpus', type=int, metavar='N', help=gpus)
    add_json(parser)
    return parser.parse_args(argv)


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    options = TrainOptions(**{option.name: getattr(args, option.name) for option in fields(TrainOptions)})
    # As many threads as cores wait for each other when another program is busy. PyTorch reads this when it is imported.
    os.environ.setdefault('OMP_NUM_THREADS', str(max(1, available_cores() // (2 * (args.gpus or 1)))))
    if args.gpus is not None and options.launcher == 'none':  # the ranks have a launcher
        train_on(args.gpus, argv)
        return
    if args.gpus is not None and 'TORCHELASTIC_RUN_ID' not in os.environ:
        raise UserError('--gpus starts the processes itself: leave out --launcher')
    show(train_with(options), args)


def train_on(gpus: int, argv: list[str]) -> None:
    """Runs `tokennorm train` in a rank per GPU. The ranks print errors and interruptions; torchrun's add nothing."""
    import torch
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    available = torch.cuda.device_count()
    if not 1 <= gpus <= available:
        raise UserError(f'--gpus {gpus}: this machine has {available} GPUs')
    try:
        ranks = ['--standalone', f'--nproc_per_node={gpus}']
        torchrun([*ranks, '-m', 'tokennorm', 'train', *argv, '--launcher', 'pytorch'])
    except (ChildFailedError, SignalException):
        raise SystemExit(1) from None
