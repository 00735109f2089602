"""What the command lines in tools/ share: arguments, the config that they name, and a runner that was checked before
anything long begins. What goes wrong ends the program with what to do, rather than with a traceback."""

from tokennorm.engine.arguments import add_runner_arguments
from tokennorm.engine.runner.build import build_runner
from tokennorm.engine.runner.config import load_config, read_config, use_options
from tokennorm.engine.runner.run import test, train

__all__ = ['add_runner_arguments', 'build_runner', 'load_config', 'read_config', 'test', 'train', 'use_options']
