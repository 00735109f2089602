"""`python -m mmcv_ops`: which operators are in use, and which are missing, in mmcv or for a config."""

import argparse
import sys
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from . import running


def main(arguments: list[str] | None = None) -> int:
    """Prints to the terminal. Returns 1 if an operator is missing, 2 if the config cannot be read."""
    parser = argparse.ArgumentParser(prog='python -m mmcv_ops', description=__doc__.partition(': ')[2])
    parser.add_argument('config', nargs='?', metavar='CONFIG', help='a file, or PACKAGE::PATH of an installed package')
    args = parser.parse_args(arguments)
    try:
        line = running()
    except ImportError as error:
        print(f'mmcv has no operators here: {error}. {_way_out()}')
        return 1
    print(line)
    from . import coverage

    compiled = line.startswith('compiled')
    if args.config is None:
        names, left = coverage.names_by_module(), {} if compiled else coverage.missing()
        total, lost = (sum(map(len, d.values())) for d in (names, left))
        print(f'{total - lost} of the {total} names that mmcv.ops takes from its compiled module are here.')
        if left:
            print('Not implemented: ' + ', '.join(left))
        return 0
    return _report(args.config, {} if compiled else coverage.missing())


def _way_out() -> str:
    mmcv, own = find_spec('mmcv'), Path(__file__).parents[1]
    if mmcv is None or mmcv.origin is None:  # None of the folder that this distribution alone makes
        return 'Install mmcv-lite, mmcv or onedl-mmcv.'
    site = Path(mmcv.origin).parents[1]
    again = 'pip install --force-reinstall --no-deps'
    if site == own:
        return f'mmcv is in {site}, without mmcv/_ext.py: {again} mmcv-ops-torchvision, or its wheel or folder.'
    there = distributions(path=[str(site)])
    owners = (one for one in there if any(str(file) == 'mmcv/__init__.py' for file in one.files or ()))
    name = next((f'{one.metadata["Name"]}=={one.version}' for one in owners), 'mmcv-lite')
    return (
        f'mmcv is in {site}, and mmcv_ops in {own}: both must be in one folder. With the pip of {own}: {again} {name}; '
        f'or with the pip of {site}: {again} mmcv-ops-torchvision, or its wheel or folder.'
    )


def _report(path: str, missing: dict[str, list[str]]) -> int:
    from mmengine.config import Config
    from mmengine.hub import get_config
    from mmengine.registry import init_default_scope

    from . import coverage

    package = path.partition('::')[0]
    try:
        if '::' in path and find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named '{package}'")
        config = get_config(path) if '::' in path else Config.fromfile(path)
        if config.get('default_scope'):
            init_default_scope(config.default_scope)
        used = coverage.of_config(config)
    except Exception as error:  # mmengine and packages raise what they like, also AssertionError for versions
        print(f'{path} is not a config that can be read: {type(error).__name__}: {error}', file=sys.stderr)
        return 2
    for module, kinds in used.items():
        state = f'missing: {", ".join(missing[module])}' if module in missing else 'ok'
        print(f'{module:24} {state:8} for {", ".join(kinds)}')
    lost = sorted(set(used) & set(missing))
    print(f'Missing for this config: {", ".join(lost)}.' if lost else 'Nothing that this config names is missing.')
    return bool(lost)


if __name__ == '__main__':
    sys.exit(main())
