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
    several = groups['hardware'].add_mutually_exclusive_group()
    several.add_argument('--gpus', type=int, metavar='N', help='train on N GPUs of this machine')
    processes = 'train on a CPU in N processes, which share the cores'
    several.add_argument('--processes', type=int, metavar='N', help=processes)
    add_json(parser)
    return parser.parse_args(argv)


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    options = TrainOptions(**{option.name: getattr(args, option.name) for option in fields(TrainOptions)})
    several = '--gpus' if args.gpus is not None else '--processes' if args.processes is not None else ''
    if several and options.launcher == 'none':  # the ranks have a launcher
        train_in_ranks(args, argv)
        return
    if several and 'TORCHELASTIC_RUN_ID' not in os.environ:
        raise UserError(f'{several} starts the processes itself: leave out --launcher')
    show(train_with(options), args)


def train_in_ranks(args: argparse.Namespace, argv: list[str]) -> None:
    """Runs `tokennorm train` in ranks, one per GPU or `--processes` on a CPU.

    The ranks print errors and interruptions; torchrun's add nothing.
    """
    import torch
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    if args.gpus is not None:
        available, ranks, kind = torch.cuda.device_count(), args.gpus, 'gpus'
    else:
        available, ranks, kind = available_cores(), args.processes, 'processes'
        os.environ['CUDA_VISIBLE_DEVICES'] = ''
    if not 1 <= ranks <= available:
        raise UserError(f'--{kind} {ranks}: this machine has {available} {"GPUs" if kind == "gpus" else "cores"}')
    if args.device is not None:
        raise UserError(f'--{kind} chooses the devices: leave out --device')
    threads = os.environ.setdefault('OMP_NUM_THREADS', str(max(1, torch.get_num_threads() // ranks)))
    os.environ.setdefault('MKL_NUM_THREADS', threads)  # mmengine would set it to 1, and PyTorch takes this number
    try:
        processes = ['--standalone', f'--nproc_per_node={ranks}']
        torchrun([*processes, '-m', 'tokennorm', 'train', *argv, '--launcher', 'pytorch'])
    except SignalException as error:
        raise SystemExit(128 + error.sigval) from None
    except ChildFailedError:
        raise SystemExit(1) from None
