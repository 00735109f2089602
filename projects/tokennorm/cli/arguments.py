"""Arguments that several subcommands have, made without imports that take long."""

import argparse
import ast
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tokennorm.base.files import in_home
from tokennorm.cli.command import Parser
from tokennorm.commands.opening import EXPORTED, INPUTS
from tokennorm.config.detector_files import is_detector, written_configs
from tokennorm.plan.options import TrainOptions

GROUPS = ('model', 'data', 'schedule', 'hardware', 'output', 'findings')


class ConfigOptions(argparse.Action):
    """mmengine's `DictAction`, whose errors are one line instead of a traceback."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        from mmengine.config import DictAction

        # mmengine's action splits dicts at their commas.
        python = {key: text for key, _, text in (value.partition('=') for value in values) if '{' in text}
        plain = [value for value in values if value.partition('=')[0] not in python]
        try:
            if wrong := [value for value in values if value.partition('=')[1] != '=' or value.startswith('=')]:
                raise ValueError(f'{wrong[0]!r} has no key or no =')
            if any(re.search(r'[=(\[,]dict\(', value) for value in plain):
                raise ValueError('dict(...) is not read: write it in a config file, or as KEY.type=X or KEY.0.type=X')
            DictAction(self.option_strings, self.dest, nargs=self.nargs)(parser, namespace, plain, option)
            getattr(namespace, self.dest).update({key: ast.literal_eval(text) for key, text in python.items()})
        except (ValueError, AssertionError, IndexError, SyntaxError, RecursionError) as error:
            given = f'{" ".join(values):.200}'
            form = 'each must be KEY=VALUE without spaces, such as a.b.c=1'
            parser.error(f'{option} {given} cannot be read: {error}; {form}')


def add_options_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--cfg-options`."""
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=ConfigOptions,
        metavar='KEY=VALUE',
        help='entries of the config to set, such as train_dataloader.batch_size=4',
    )


def add_detector_arguments(parser: Parser, exported: bool = False) -> None:
    """Adds a detector: a work directory or a published detector, or a config and a checkpoint; or an exported file."""
    names = 'work directory of a training run, or one of `tokennorm weights`'
    if exported:
        names += ', or an exported file'
    parser.is_input = lambda word: _is_input(word, exported)
    parser.add_argument(
        'detector',
        metavar='DETECTOR',
        help=f'{names}; or a config, followed by CHECKPOINT',
    )
    checkpoint = 'checkpoint of a config; default: the best of the work directory'
    parser.add_argument('checkpoint', metavar='CHECKPOINT', nargs='?', help=checkpoint)


def _is_input(word: str, exported: bool) -> bool:
    """Whether a word is not a detector but what a command does with one: an image, a video, a folder, a webcam."""
    path = Path(in_home(word))
    if not word or path.suffix in ('.py', '.pth', '.safetensors') or (exported and path.suffix in EXPORTED):
        return False
    if path.is_dir():
        return not written_configs(path)
    return path.is_file() or word.lower().endswith((*INPUTS, *EXPORTED)) or '://' in word or word.isdecimal()


def take_back(args: argparse.Namespace, following: str) -> None:
    """Gives the list of arguments after the checkpoint the first one, which argparse takes for a checkpoint."""
    is_whole = is_detector(args.detector) or args.detector.endswith(EXPORTED)
    if is_whole and args.checkpoint is not None and not args.checkpoint.endswith(('.pth', '.safetensors')):
        getattr(args, following).insert(0, args.checkpoint)
        args.checkpoint = None


def add_work_dir(parser: argparse.ArgumentParser) -> None:
    """Adds the former name of `--out`, which `--help` does not show."""
    parser.add_argument('--work-dir', dest='out', default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_training_options(
    parser: argparse.ArgumentParser, names: Sequence[str] = (), **changed: dict[str, Any]
) -> dict[str, Any]:
    """Adds options of `TrainOptions`, all or those of some names, and returns the groups that they are in.

    `changed` has other arguments of `add_argument` for some of them.
    """
    groups = {name: parser.add_argument_group(name) if name else parser for name in ('', *GROUPS)}
    for option in fields(TrainOptions):
        argument = {**option.metadata, **changed.get(option.name, {})}
        if argument and (not names or option.name in names):
            argument.pop('limits', None)
            group = argument.pop('group')
            name = f'--{option.name.replace("_", "-")}' if group else option.name
            groups[group].add_argument(name, default=option.default, **argument)
    return groups
