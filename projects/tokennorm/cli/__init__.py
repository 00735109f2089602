"""What the command lines in tools/ share: arguments, the config that they name, and a runner that was checked before
anything long begins. What goes wrong ends the program with what to do, rather than with a traceback."""

from tokennorm.cli.config import add_runner_arguments, load_config, read_config, use_options
from tokennorm.cli.runner import build_runner
from tokennorm.cli.running import test, train

__all__ = ['add_runner_arguments', 'build_runner', 'load_config', 'read_config', 'test', 'train', 'use_options']
