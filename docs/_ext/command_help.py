"""The directive `command-help`: the help text of each subcommand of `tokennorm`, read from its parser."""

import subprocess
import sys

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tokennorm.cli.main import COMMANDS


def help_of(*arguments: str) -> str:
    """What `tokennorm ARGUMENTS --help` prints."""
    command = [sys.executable, '-m', 'tokennorm', *arguments, '--help']
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class CommandHelp(SphinxDirective):
    """One section per subcommand, with its help."""

    def run(self) -> list[nodes.Node]:
        found = []
        for name in COMMANDS:
            section = nodes.section(ids=[f'tokennorm-{name}'])
            section += nodes.title('', f'tokennorm {name}')
            section += nodes.literal_block('', help_of(name), language='text')
            found.append(section)
        return found


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive('command-help', CommandHelp)
    return dict(parallel_read_safe=True)
