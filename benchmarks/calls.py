"""Functions of the package that `tokennorm train --data` calls, and those that change its config.

    python benchmarks/calls.py [--data DIR]

It trains for one epoch, by default on 6 generated images, and prints how many modules and functions were entered, how
often, and how often a module called another one: until the runner is built, until it is, until the first iteration,
and until the end with the report. Imports do not count, and calls of generators count each time they resume. A change
of the config belongs to the innermost function of the package that was running.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import tokennorm
from experiments.shapes import make_shapes_dataset
from tokennorm.plan.changes import Plan

PACKAGE = str(Path(tokennorm.__file__).parent) + os.sep
STAGES = {  # by file, function and event
    ('engine/runner.py', 'build_runner', 'call'): 'build_runner begins',
    ('engine/runner.py', 'build_runner', 'return'): 'build_runner ends',
    ('runner/loops.py', 'run_epoch', 'call'): 'first iteration',
}


class Trace:
    """A profile function that counts calls in the package, and finds who changes the config of the plan."""

    def __init__(self) -> None:
        self.functions, self.moves, self.rows, self.changes = Counter(), 0, {}, Counter()
        self.stack, self.config, self.before = [], None, {}
        self.importing = 0  # modules that are being imported

    def __call__(self, frame, event, _) -> None:
        code = frame.f_code
        if event in ('call', 'return') and code.co_filename.endswith(('engine/runner.py', 'runner/loops.py')):
            key = '/'.join(Path(code.co_filename).parts[-2:]), code.co_name, event
            if key in STAGES:
                self.note(STAGES[key])
        if event in ('call', 'return') and code.co_name == '<module>':
            self.importing += 1 if event == 'call' else -1
        if self.importing or event not in ('call', 'return') or not code.co_filename.startswith(PACKAGE):
            return
        self.find_change()
        place = code.co_filename.removeprefix(PACKAGE), code.co_qualname
        if event == 'return':
            if self.stack:
                self.stack.pop()
            return
        if self.stack and self.stack[-1][0] != place[0]:
            self.moves += 1
        self.functions[place] += 1
        self.stack.append(place)
        if isinstance(plan := frame.f_locals.get('self'), Plan) and hasattr(plan, 'cfg'):
            self.config, self.before = plan, plan.cfg._cfg_dict.to_dict()

    def find_change(self) -> None:
        """Compares the config with what it was at the last event, until the first iteration."""
        if self.config is not None and 'first iteration' not in self.rows and self.stack:
            now = self.config.cfg._cfg_dict.to_dict()
            if now != self.before:
                self.changes[self.stack[-1]] += 1
                self.before = now

    def note(self, stage: str) -> None:
        modules = {path for path, _ in self.functions}
        self.rows.setdefault(stage, (len(modules), len(self.functions), self.functions.total(), self.moves))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--data', type=Path, help='folder to train on')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = args.data or Path(folder, 'data')
        if args.data is None:
            make_shapes_dataset(data, num_train=6, num_val=6, image_size=64)
        trace = Trace()
        sys.setprofile(trace)
        try:
            tokennorm.train(data=data, epochs=1, image_size=128, init='none', workers=0, out=Path(folder, 'run'))
        finally:
            sys.setprofile(None)
        trace.note('end, with report')
    print('\n| until | modules | functions | calls | calls of another module |\n|---|---|---|---|---|')
    for stage, counts in trace.rows.items():
        print(f'| {stage} | {" | ".join(f"{count:,}" for count in counts)} |')
    print('\nThe config was changed in')
    for (path, name), count in sorted(trace.changes.items()):
        print(f'  {path}: {name} ({count})')


if __name__ == '__main__':
    main()
