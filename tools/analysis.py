"""mmdet's analysis tools on TokenNorm's configs: `python tools/analysis.py TOOL ARGUMENTS...`

Each tool takes the arguments of the file of that name in mmdet's tools/: `python tools/analysis.py get_flops --help`.
"""

import argparse
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import mmdet

from tokennorm.analysis.flops import count_attention_and_norms
from tokennorm.checkpoints import CheckpointError
from tokennorm.checkpoints.in_mmengine import keep_mmengine_from_unpickling
from tokennorm.cli.command import command
from tokennorm.environment import require_mmcv_ops
from tokennorm.messages import user_errors

TOOLS = Path(mmdet.__file__).parent / '.mim' / 'tools'
ALIASES = dict(flops='get_flops', log_plots='analyze_logs')


def find_tools() -> dict[str, Path]:
    """Returns mmdet's analysis tools by name."""
    paths = [path for folder in ('analysis_tools', 'misc') for path in sorted((TOOLS / folder).glob('*.py'))]
    tools = {path.stem: path for path in paths}
    return tools | {alias: tools[name] for alias, name in ALIASES.items()}


@command
def main(argv: list[str]) -> None:
    tools = find_tools()
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f'tools: {", ".join(sorted(tools))}',
    )
    parser.add_argument('tool', choices=sorted(tools), metavar='TOOL')
    parser.add_argument('arguments', nargs=argparse.REMAINDER, help='arguments of the tool')
    args = parser.parse_args(argv)
    with user_errors(ImportError, RuntimeError):
        require_mmcv_ops()
        keep_mmengine_from_unpickling()
    count_attention_and_norms()
    # The default style of analyze_logs; matplotlib has it under this name only.
    plt.style.library['dark'] = plt.style.library['seaborn-v0_8-dark']
    sys.argv = [str(tools[args.tool]), *args.arguments]
    with user_errors(CheckpointError, FileNotFoundError):
        runpy.run_path(sys.argv[0], run_name='__main__')


if __name__ == '__main__':
    main()
