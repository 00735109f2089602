"""Processor time of a training iteration: tools/train.py compared with mmengine's plain Runner, the same config.

    python benchmarks/training_loop.py [--iterations 100] [--rounds 3]

The config's dataset, BCCD, must be in `data/bccd` of the current directory. Each contender runs in a process of its
own, on one thread and without data workers. They alternate. The time of the first 20 iterations does not count.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mmengine.config import Config, DictAction

CONFIG = Path(__file__).resolve().parents[1] / 'configs/demo/retinanet_pvt-mini_fpn_bccd.py'
WARM_UP = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--config', default=str(CONFIG))
    parser.add_argument('--iterations', type=int, default=100)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={})
    parser.add_argument('--contender', choices=['plain', 'ours'], help='run one of them once, and print its time')
    args = parser.parse_args()
    if args.contender:
        train(args)
        return
    times: dict[str, list[float]] = {'plain': [], 'ours': []}
    for _ in range(args.rounds):
        for name, found in times.items():
            command = [sys.executable, __file__, *sys.argv[1:], '--contender', name]
            run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, 'OMP_NUM_THREADS': '1'})
            if run.returncode:
                raise SystemExit(run.stderr)
            found.append(float(run.stdout.splitlines()[-1]))
            print(f'{name}: {found[-1]:.1f} ms an iteration', flush=True)
    plain, ours = (statistics.median(found) for found in times.values())
    print(f'median {ours:.1f} ms, plain Runner {plain:.1f} ms: {ours / plain:.3f} times')


def train(args: argparse.Namespace) -> None:
    """Trains for the given iterations, prints the milliseconds of one, and ends the process."""
    from mmengine.hooks import Hook
    from mmengine.runner import Runner

    from tokennorm.engine.runner import build_runner
    from tokennorm.engine.runner import run as train

    class TimeHook(Hook):
        priority = 'LOWEST'

        def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: object = None, outputs: object = None):
            if runner.iter + 1 == WARM_UP:
                self.start = time.process_time()
            elif runner.iter + 1 == WARM_UP + args.iterations:
                print(1e3 * (time.process_time() - self.start) / args.iterations, flush=True)
                os._exit(0)

    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options)
    cfg.train_dataloader.update(num_workers=0, persistent_workers=False)
    with tempfile.TemporaryDirectory() as cfg.work_dir:
        if args.contender == 'plain':
            runner = Runner.from_cfg(cfg)
            runner.register_hook(TimeHook())
            runner.train()
        else:
            runner = build_runner(cfg, splits=('train',))
            runner.register_hook(TimeHook())
            train(runner, 'the same command continues.')


if __name__ == '__main__':
    main()
