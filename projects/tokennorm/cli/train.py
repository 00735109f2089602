"""Trains a detector, or a classifier of configs/imagenet."""

import argparse
import os

from tokennorm.argument_checks import check_training
from tokennorm.cli.arguments import add_runner_arguments
from tokennorm.cli.command import command, make_parser
from tokennorm.environment import available_cores
from tokennorm.messages import user_errors


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add_runner_arguments(parser)
    parser.add_argument('--epochs', type=int, metavar='N', help='number of epochs; the schedule is rescaled')
    parser.add_argument(
        '--lr', type=float, help='learning rate; default: as in the config, scaled to the batch with --data'
    )
    parser.add_argument(
        '--image-size',
        type=int,
        metavar='S',
        help='short side that images are resized to, in pixels; default: as in the config, or with --data smaller if '
        'the images are small',
    )
    parser.add_argument(
        '--augment',
        choices=['strong'],
        help='strong: Mosaic, large-scale jitter and MixUp; no Mosaic or MixUp with masks',
    )
    parser.add_argument('--ema', action='store_true', help='validate and save a moving average of the weights')
    parser.add_argument('--patience', type=int, metavar='N', help='stop after N validations without a better metric')
    parser.add_argument(
        '--log',
        type=lambda text: text.split(','),
        default=[],
        metavar='NAMES',
        help='additional loggers, joined by commas: tensorboard, wandb, mlflow, clearml',
    )
    parser.add_argument(
        '--workers',
        type=int,
        metavar='N',
        help='processes that load data; default: as in the config, or with --data 1 to 4, by the number of cores',
    )
    parser.add_argument('--amp', action='store_true', help='automatic mixed precision, on a GPU')
    parser.add_argument('--auto-scale-lr', action='store_true', help='scale the learning rate to the total batch size')
    parser.add_argument(
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
    del args['traceback']
    with user_errors(ImportError, OSError, ValueError):
        check_training(**args)
    # As many threads as cores wait for each other when another program is busy. PyTorch reads this when it is imported.
    os.environ.setdefault('OMP_NUM_THREADS', str(max(1, available_cores() // 2)))
    from tokennorm.engine.training import train

    train(**args)
