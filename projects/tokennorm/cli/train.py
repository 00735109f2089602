"""Trains a detector, or a classifier of configs/imagenet.

examples:
  tokennorm train --data DIR
  tokennorm train mask-rcnn_pvt-t_fpn_1x_coco --data DIR --epochs 12 --ema
"""

import argparse
import os

from tokennorm.argument_checks import MODEL_NAMES, NORMS, STEMS, check_training
from tokennorm.cli.arguments import add_options_argument, add_runner_arguments
from tokennorm.cli.command import IMPORTING, Parser, command
from tokennorm.environment import available_cores
from tokennorm.messages import UserError, print_once, user_errors


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument(
        'config',
        nargs='?',
        help='config file, or a name of `tokennorm configs` or mmdet::FOLDER/NAME; default: chosen for --data',
    )
    add_options_argument(parser)
    groups = ('model', 'data', 'schedule', 'hardware', 'output')
    model, data, schedule, hardware, output = map(parser.add_argument_group, groups)
    add_runner_arguments(data, hardware, output)
    model.add_argument('--model', choices=MODEL_NAMES, help='without a config; default: by hardware and annotations')
    model.add_argument('--norm', choices=NORMS, help='without a config; local: mini only; default: ln, dtn for mini')
    model.add_argument('--stem', choices=STEMS, help='without a config: plain or Dual PatchNorm; default: plain')
    model.add_argument(
        '--init',
        metavar='WEIGHTS',
        help='coco, imagenet, none, a file or a work directory; default: as in the config; with --data coco if '
        'published',
    )
    schedule.add_argument('--epochs', type=int, metavar='N', help='number of epochs; the schedule is rescaled')
    schedule.add_argument(
        '--lr', type=float, help='learning rate; default: as in the config, with --data scaled to the batch'
    )
    data.add_argument(
        '--image-size', type=int, metavar='S', help="short side in pixels; default: the config's, less for small images"
    )
    data.add_argument('--augment', choices=['strong'], help='large-scale jitter, and without masks Mosaic and MixUp')
    schedule.add_argument('--ema', action='store_true', help='validate and save a moving average of the weights')
    schedule.add_argument('--patience', type=int, metavar='N', help='stop after N validations without a better metric')
    output.add_argument(
        '--log',
        type=lambda text: text.split(','),
        default=[],
        metavar='NAMES',
        help='additional loggers, joined by commas: tensorboard, wandb, mlflow, clearml, neptune, dvclive, aim',
    )
    data.add_argument(
        '--workers', type=int, metavar='N', help='data loading processes; default: as in the config, with --data 1 to 4'
    )
    hardware.add_argument(
        '--amp',
        nargs='?',
        const=True,
        default=False,
        metavar='bf16|fp16',
        help='automatic mixed precision; without a value bf16 where the GPU has it',
    )
    hardware.add_argument('--gpus', type=int, metavar='N', help='train on N GPUs of this machine, without --launcher')
    schedule.add_argument(
        '--auto-scale-lr', action='store_true', help='scale the learning rate to the total batch size'
    )
    schedule.add_argument(
        '--resume',
        nargs='?',
        const=True,
        default=False,
        metavar='CHECKPOINT',
        help='resume from this checkpoint, or without a value from the latest one in the work directory',
    )
    return parser.parse_args(argv)


@command
def main(argv: list[str]) -> None:
    args = vars(parse_args(argv))
    del args['traceback'], args['local_rank']
    gpus = args.pop('gpus')
    with user_errors(ImportError, OSError, ValueError):
        check_training(args)
    # As many threads as cores wait for each other when another program is busy. PyTorch reads this when it is imported.
    os.environ.setdefault('OMP_NUM_THREADS', str(max(1, available_cores() // (2 * (gpus or 1)))))
    if gpus is not None and args['launcher'] != 'none' and 'TORCHELASTIC_RUN_ID' not in os.environ:
        raise UserError('--gpus starts the processes itself: leave out --launcher')
    if gpus is not None and args['launcher'] == 'none':  # the ranks have a launcher
        train_on(gpus, argv)
        return
    print_once(IMPORTING)
    from tokennorm.engine.training import train

    train(**args)


def train_on(gpus: int, argv: list[str]) -> None:
    """Runs `tokennorm train` in a rank per GPU. The ranks print errors and interruptions; torchrun's add nothing."""
    import torch
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    found = torch.cuda.device_count()
    if not 1 <= gpus <= found:
        raise UserError(f'--gpus {gpus}: this machine has {found} GPUs')
    try:
        ranks = ['--standalone', f'--nproc_per_node={gpus}']
        torchrun([*ranks, '-m', 'tokennorm', 'train', *argv, '--launcher', 'pytorch'])
    except (ChildFailedError, SignalException):
        raise SystemExit(1) from None
