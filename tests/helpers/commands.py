"""Subcommands and programs of tools/, run in this process: a new one imports torch and mmdet anew."""

import argparse
import runpy
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tokennorm.cli.arguments import ConfigOptions

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> Callable[[list[str]], None]:
    """`main(argv)` of tools/NAME.py, or else of the subcommand NAME. An error ends it with SystemExit."""
    if not (ROOT / 'tools' / f'{name}.py').is_file():
        return import_module(f'tokennorm.cli.{name}').main
    return runpy.run_path(str(ROOT / 'tools' / f'{name}.py'))['main']


def as_dict(words):
    """What `--cfg-options` makes of words."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=ConfigOptions)
    return parser.parse_args(['--cfg-options', *words]).cfg_options
