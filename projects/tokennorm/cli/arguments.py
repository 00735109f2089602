"""The arguments that name a config and change it, without imports that take long."""

import argparse
from typing import Any

from tokennorm.argument_checks import check_inputs
from tokennorm.cli.command import Parser
from tokennorm.detector_files import detector_files, is_detector
from tokennorm.messages import user_errors


class ConfigOptions(argparse.Action):
    """mmengine's `DictAction`, whose errors are one line instead of a traceback."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        from mmengine.config import DictAction

        read = DictAction(self.option_strings, self.dest, nargs=self.nargs)
        for value in values:
            key, equals, _ = value.partition('=')
            if not equals or not all(key.split('.')):
                parser.error(f'{option_string}: {value!r} must be KEY=VALUE, where KEY is the path of an entry, a.b.c')
            try:
                read(parser, argparse.Namespace(), [value], option_string)
            except (ValueError, AssertionError, IndexError) as error:
                parser.error(f'{option_string}: {value!r} cannot be read: {error}')
        read(parser, namespace, values, option_string)


def add_options_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--cfg-options`."""
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=ConfigOptions,
        metavar='KEY=VALUE',
        help='entries of the config to set, such as train_dataloader.batch_size=4',
    )


def add_detector_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds a detector: a work directory or a published detector, or a config and a checkpoint. See `use_detector`."""
    parser.add_argument(
        'config',
        metavar='DETECTOR',
        help='work directory of a training run, or one of `tokennorm weights`; or a config, followed by CHECKPOINT',
    )
    parser.add_argument(
        'checkpoint',
        metavar='CHECKPOINT',
        nargs='?',
        help='checkpoint of a config; default: the best of the work directory',
    )


def use_detector(args: argparse.Namespace, following: str = '') -> None:
    """Sets `config` and `checkpoint` where a work directory or a published detector was named, and checks both.

    Args:
        args: Parsed arguments, changed in place.
        following: Name of the list of arguments after the checkpoint, whose first one argparse takes for a checkpoint.

    Raises:
        UserError: if a file is not found.
    """
    if following and args.checkpoint is not None and is_detector(args.config) and not args.checkpoint.endswith('.pth'):
        getattr(args, following).insert(0, args.checkpoint)
        args.checkpoint = None
    with user_errors(FileNotFoundError):
        args.config, args.checkpoint = detector_files(args.config, args.checkpoint)
        check_inputs(args.config, args.checkpoint)


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    """Adds a config, which may be left out."""
    parser.add_argument(
        'config',
        nargs='?',
        help='config file, or the name of a config: one of `tokennorm configs`, or mmdet::FOLDER/NAME; without it one '
        'is chosen for --data',
    )


def add_runner_arguments(parser: Parser, work_dir: str = 'as in the config, or work_dirs/NAME') -> None:
    """Adds the arguments that mmdet's tools have in common, without the config."""
    parser.group('output').add_argument(
        '--work-dir', help=f'directory of logs, checkpoints and reports; default: {work_dir}'
    )
    parser.group('data').add_argument(
        '--data',
        metavar='DIR',
        help='folder that replaces the data of the config, with its classes: COCO, YOLO or Pascal VOC for a detector, '
        'train/CLASS/*.jpg and val/CLASS/*.jpg for a classifier',
    )
    add_options_argument(parser)
    parser.group('hardware').add_argument(
        '--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none', help='job launcher'
    )
    parser.group('hardware').add_argument(
        '--local_rank', '--local-rank', type=int, default=0, help='set by torch.distributed.launch'
    )
