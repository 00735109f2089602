"""Trains a detector, or a classifier of configs/imagenet."""

import argparse

from tokennorm.cli.command import command, make_parser
from tokennorm.engine.arguments import add_runner_arguments


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add_runner_arguments(parser)
    parser.add_argument('--amp', action='store_true', help='automatic mixed precision')
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
    from tokennorm.engine.training import run

    run(**args)


if __name__ == '__main__':
    main()
