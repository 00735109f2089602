"""mmdet's analysis tools on TokenNorm's configs: `python tools/analysis.py TOOL ARGUMENTS...`

Each tool takes the arguments of the file of that name in mmdet's tools/, such as `browse_dataset --help`. The tool
`flops` is TokenNorm's, since mmengine's counter skips attention and DTN.
"""

import argparse
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import mmdet
from flops import count

from tokennorm.base.environment import check_mmcv_ops
from tokennorm.checkpoints.safe_reading import keep_mmengine_from_unpickling
from tokennorm.cli.command import command
from tokennorm.config.open_config import read_config

TOOLS = Path(mmdet.__file__).parent / '.mim' / 'tools'
ALIASES = dict(log_plots='analyze_logs')


def find_tools() -> dict[str, Path]:
    """Returns mmdet's analysis tools by name."""
    paths = [path for folder in ('analysis_tools', 'misc') for path in sorted((TOOLS / folder).glob('*.py'))]
    tools = {path.stem: path for path in paths}
    del tools['get_flops']
    return tools | {alias: tools[name] for alias, name in ALIASES.items()}


def flops(argv: list[str]) -> None:
    """Prints the parameters and the multiply-adds of a detector or a classifier."""
    parser = argparse.ArgumentParser(prog='tools/analysis.py flops', description=flops.__doc__)
    parser.add_argument('config', help='config file, or the name of a config')
    parser.add_argument(
        '--shape', type=int, nargs=2, default=[800, 1280], help='height and width in pixels; default: %(default)s'
    )
    args = parser.parse_args(argv)
    found = count(read_config(args.config), args.shape)
    print(f'{found["flops"] / 1e9:.3f} G multiply-adds, {found["parameters"] / 1e6:.2f} M parameters')


@command
def main(argv: list[str]) -> None:
    tools = find_tools()
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f'tools: flops, {", ".join(sorted(tools))}',
    )
    parser.add_argument('tool', choices=['flops', *sorted(tools)], metavar='TOOL')
    parser.add_argument('arguments', nargs=argparse.REMAINDER, help='arguments of the tool')
    args = parser.parse_args(argv)
    check_mmcv_ops()
    keep_mmengine_from_unpickling()
    if args.tool == 'flops':
        flops(args.arguments)
        return
    # The default style of analyze_logs; matplotlib has it under this name only.
    plt.style.library['dark'] = plt.style.library['seaborn-v0_8-dark']
    sys.argv = [str(tools[args.tool]), *args.arguments]
    runpy.run_path(sys.argv[0], run_name='__main__')


if __name__ == '__main__':
    main()
