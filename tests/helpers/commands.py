"""Programs of tools/, run in this process: a new one imports torch and mmdet anew."""

import runpy
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> Callable[[list[str]], None]:
    """`main(argv)` of tools/NAME.py. It ends with SystemExit where the program would print an error."""
    return runpy.run_path(str(ROOT / 'tools' / f'{name}.py'))['main']
