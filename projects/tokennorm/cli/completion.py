"""Completion of subcommands, options and paths in a shell, by the package shtab."""

import argparse
from collections.abc import Mapping
from importlib import import_module


def completion(shell: str, commands: Mapping[str, str]) -> str:
    """Returns what a shell needs to complete subcommands, given with their help: 'bash', 'zsh' or 'fish'."""
    import shtab

    root = argparse.ArgumentParser('tokennorm')
    subcommands = root.add_subparsers()
    for name, text in commands.items():
        parser = import_module(f'tokennorm.cli.{name}').build_parser()
        for action in parser._actions:
            if action.nargs != 0 and action.choices is None and action.type not in (int, float):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        subcommands.add_parser(name, help=text, parents=[parser], add_help=False)
    return shtab.complete(root, shell)
