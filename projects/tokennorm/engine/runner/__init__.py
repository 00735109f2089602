"""A config from command-line arguments, and a runner that is checked before anything long begins.

Errors of the user end the program with one line that says what to do.
"""

from tokennorm.engine import compat  # noqa: F401 - first, because it hides a message of mmdet
from tokennorm.engine.arguments import add_runner_arguments
from tokennorm.engine.runner.build import build_runner
from tokennorm.engine.runner.config import load_config, read_config, use_options
from tokennorm.engine.runner.run import test, train

__all__ = ['add_runner_arguments', 'build_runner', 'load_config', 'read_config', 'test', 'train', 'use_options']
