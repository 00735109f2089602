"""The arguments that name a config and change it, without imports that take long."""

import argparse
from typing import Any

from tokennorm.config.paths import config as config_path
from tokennorm.messages import user_errors
from tokennorm.published import detector_files, is_detector


class ConfigOptions(argparse.Action):
    """mmengine's `DictAction`, whose errors are one line instead of a traceback."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        from mmengine.config import DictAction

        read = DictAction(self.option_strings, self.dest, nargs=self.nargs)
        try:
            read(parser, namespace, values, option_string)
        except (ValueError, AssertionError, IndexError) as error:
            given = ' '.join(values)
            parser.error(f'{option_string} {given} cannot be read: {error}; each must be KEY=VALUE, such as a.b.c=1')


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
    """Sets `config` and `checkpoint` where a work directory or a published detector was named, and checks the config.

    `following` names the list of arguments after the checkpoint, whose first one argparse takes for a checkpoint.
    """
    if following and is_detector(args.config) and not (args.checkpoint or '.pth').endswith(('.pth', '.safetensors')):
        getattr(args, following).insert(0, args.checkpoint)
        args.checkpoint = None
    with user_errors(FileNotFoundError):
        args.config, args.checkpoint = detector_files(args.config, args.checkpoint)
        config_path(args.config)


def add_runner_arguments(
    data: Any, hardware: Any, output: Any, work_dir: str = 'as in the config, or work_dirs/NAME'
) -> None:
    """Adds the arguments that mmdet's tools have in common, without the config, to these groups of arguments."""
    output.add_argument('--work-dir', help=f'directory of logs, checkpoints and reports; default: {work_dir}')
    data.add_argument(
        '--data',
        metavar='DIR',
        help='folder, or data.yaml of YOLO, that replaces the data of the config: COCO, YOLO or Pascal VOC for a '
        'detector, train/CLASS/*.jpg and val/CLASS/*.jpg for a classifier',
    )
    hardware.add_argument(
        '--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none', help='job launcher'
    )
    hardware.add_argument('--local_rank', '--local-rank', help='set by torch.distributed.launch; not needed')
