"""Trains a detector, or a classifier of configs/imagenet.

examples:
  tokennorm train --data DIR
  tokennorm train mask-rcnn_pvt-t_fpn_1x_coco --data DIR --epochs 12 --ema
"""

import argparse
import os
from dataclasses import fields

from tokennorm.base.cores import THREADS, chosen_threads, limit_threads
from tokennorm.base.messages import UserError, counted
from tokennorm.cli.arguments import add_options_argument, add_training_options, add_work_dir
from tokennorm.cli.command import Parser, add_json, command, show
from tokennorm.commands.train import train_with
from tokennorm.plan.options import TrainOptions


def build_parser() -> Parser:
    parser = Parser(__doc__)
    groups = add_training_options(parser)
    add_work_dir(parser)
    add_options_argument(parser)
    groups['hardware'].add_argument('--gpus', type=int, metavar='N', help='train on N GPUs of this machine')
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    options = TrainOptions(**{option.name: getattr(args, option.name) for option in fields(TrainOptions)})
    if args.gpus is not None and options.launcher == 'none':  # the ranks have a launcher
        train_in_ranks(args, argv)
        return
    if args.gpus is not None and 'TORCHELASTIC_RUN_ID' not in os.environ:
        raise UserError('--gpus starts the processes itself: leave out --launcher')
    show(train_with(options), args)


def train_in_ranks(args: argparse.Namespace, argv: list[str]) -> None:
    """Runs `tokennorm train` in ranks, one per GPU. They print errors and interruptions; torchrun's add nothing."""
    import torch
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    if not 1 <= args.gpus <= torch.cuda.device_count():
        raise UserError(f'--gpus {args.gpus}: this machine has {counted(torch.cuda.device_count(), "GPU")}')
    if args.device is not None:
        raise UserError('--gpus chooses the devices: leave out --device')
    if (threads := chosen_threads()) is None:
        limit_threads()
        threads = str(max(1, torch.get_num_threads() // args.gpus))
    for name in THREADS:  # mmengine would set that of MKL to 1, and PyTorch takes this number
        os.environ[name] = os.environ.get(name) or threads
    try:
        processes = ['--standalone', f'--nproc_per_node={args.gpus}']
        torchrun([*processes, '-m', 'tokennorm', 'train', *argv, '--launcher', 'pytorch'])
    except SignalException as error:
        raise SystemExit(128 + error.sigval) from None
    except ChildFailedError:
        raise SystemExit(1) from None
