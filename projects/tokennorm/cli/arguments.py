"""The arguments that name a config and change it, without imports that take long."""

import argparse
from typing import Any


class ConfigOptions(argparse.Action):
    """mmengine's `DictAction`, whose errors end with the usage instead of a traceback."""

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
    """Adds a detector's config and checkpoint."""
    parser.add_argument('config', help='config file, or the name of a config')
    parser.add_argument(
        'checkpoint',
        help='checkpoint of a training run with that config, on any data, or its work directory: the best one',
    )


def add_runner_arguments(
    parser: argparse.ArgumentParser, work_dir: str = 'as in the config, or work_dirs/NAME', needs_config: bool = True
) -> None:
    """Adds the arguments that mmdet's tools have in common."""
    choice = '' if needs_config else '; without it one is chosen for --data'
    parser.add_argument(
        'config',
        nargs=None if needs_config else '?',
        help=f'config file, or the name of a config: one of `tokennorm configs`, or mmdet::FOLDER/NAME{choice}',
    )
    parser.add_argument('--work-dir', help=f'directory of logs, checkpoints and reports; default: {work_dir}')
    parser.add_argument(
        '--data',
        metavar='DIR',
        help='folder that replaces the data of the config, with its classes: COCO, YOLO or Pascal VOC for a detector, '
        'train/CLASS/*.jpg and val/CLASS/*.jpg for a classifier',
    )
    add_options_argument(parser)
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none', help='job launcher')
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help='set by torch.distributed.launch')
