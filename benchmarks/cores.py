"""Training images per second on a CPU: by threads, by data workers, and by ranks with the same total batch.

    python benchmarks/cores.py --data FOLDER [--threads 1 2 4 8 16] [--workers 2 0 4] [--ranks 2 4 8] [--busy 1]

The first process trains with each number of threads in turn, others with each number of workers on all cores, which is
the default of `tokennorm train`, and with each number of gloo ranks of one thread each, whose optimizer steps are of
equal total batches: the most ranks times one image. `--busy N` has N other programs compute without a pause. A rate is
of `--iterations` iterations after `--warm-up`, of a whole training loop: loading, augmentation,
forward and backward pass, optimizer. docs/speed.md has `--threads 1 2 --workers 1 --ranks 2 --iterations 40 --warm-up
10`, with and without `--busy 1`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import busy_programs, print_table

from tokennorm.base.cores import let_threads_sleep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--data', type=Path, required=True, help='a folder for `tokennorm train --data`')
    parser.add_argument('--model', default='trial', help='of `tokennorm train` (default: trial)')
    parser.add_argument('--threads', type=int, nargs='*', default=[1, 2, 4, 8, 16])
    parser.add_argument('--workers', type=int, nargs='*', default=[2, 0, 4])
    parser.add_argument('--ranks', type=int, nargs='*', default=[2, 4, 8])
    parser.add_argument('--batch-size', type=int, default=1, help='images of an iteration of a rank (default: 1)')
    parser.add_argument('--image-size', type=int)
    parser.add_argument('--iterations', type=int, default=40)
    parser.add_argument('--warm-up', type=int, default=8)
    parser.add_argument('--busy', type=int, default=0, help='other programs that compute (default: 0)')
    parser.add_argument('--accumulate', type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument('--measured', action='store_true', help=argparse.SUPPRESS)  # this process is one that trains
    args = parser.parse_args()
    if args.measured:
        train(args)
        return
    cores = len(os.sched_getaffinity(0))
    let_threads_sleep()  # as the command does
    runs = [dict(threads=[n for n in args.threads if n <= cores], workers=args.workers[:1])]
    runs += [dict(threads=[cores], workers=[n]) for n in args.workers]
    runs += [dict(threads=[1], workers=[1], ranks=n, accumulate=max(args.ranks) // n) for n in args.ranks if n <= cores]
    with busy_programs(args.busy):
        rows = [row for run in runs if run['threads'] for row in measure(args, **run)]
    print_table(rows)


def measure(
    args: argparse.Namespace, threads: list[int], workers: list[int], ranks: int = 1, accumulate: int = 1
) -> list[dict[str, str]]:
    """The rows of one training, one for each number of threads; each is printed at once, too."""
    command = [sys.executable]
    if ranks > 1:
        command += ['-m', 'torch.distributed.run', '--standalone', f'--nproc_per_node={ranks}']
    command += [__file__, '--measured', f'--data={args.data}', f'--model={args.model}', f'--accumulate={accumulate}']
    command += [f'--batch-size={args.batch_size}', f'--iterations={args.iterations}', f'--warm-up={args.warm_up}']
    command += [f'--image-size={args.image_size}'] if args.image_size else []
    command += ['--ranks', str(ranks), '--workers', *map(str, workers), '--threads', *map(str, threads)]
    environment = {**os.environ, 'OMP_NUM_THREADS': str(threads[0]), 'CUDA_VISIBLE_DEVICES': ''}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    found = [line.split()[1:] for line in run.stdout.splitlines() if line.startswith('RATE ')]
    if len(found) != len(threads):
        print('\n'.join([f'failed: {ranks} ranks, {workers} workers', *run.stderr.splitlines()[-8:]]), flush=True)
    rows = [
        {
            'ranks': str(ranks),
            'threads': count,
            'workers': str(workers[0]),
            'images a step': str(ranks * args.batch_size * accumulate),
            'images/s': rate,
        }
        for count, rate in found
    ]
    for row in rows:
        print(row, flush=True)
    return rows


def train(args: argparse.Namespace) -> None:
    """Trains with each number of threads in turn, prints the rates, and ends the process."""
    import torch
    from mmengine.hooks import Hook
    from mmengine.runner import Runner
    from torch import distributed

    from tokennorm.commands.importing import import_openmmlab

    import_openmmlab()
    from tokennorm.engine.distributed import use_device
    from tokennorm.engine.runner import build_runner, run
    from tokennorm.engine.training import plan_training
    from tokennorm.findings import Findings, judging
    from tokennorm.plan.options import TrainOptions

    ranks = args.ranks[0]

    class RateHook(Hook):
        """Sets the threads before, and takes the time of the iterations after the warm-up."""

        priority = 'LOWEST'
        threads = list(args.threads)
        done = 0

        def before_train(self, runner: Runner) -> None:
            torch.set_num_threads(self.threads[0])

        def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: object = None, outputs: object = None):
            self.done += 1
            if self.done == args.warm_up:
                self.start = time.perf_counter()
            elif self.done == args.warm_up + args.iterations:
                if ranks > 1:
                    distributed.barrier()
                rate = ranks * args.batch_size * args.iterations / (time.perf_counter() - self.start)
                if runner.rank == 0:
                    print(f'RATE {self.threads[0]} {rate:.2f}', flush=True)
                self.threads.pop(0)
                self.done = 0
                if not self.threads:
                    if ranks > 1:
                        distributed.barrier()
                    os._exit(0)
                torch.set_num_threads(self.threads[0])

    use_device('cpu')
    with tempfile.TemporaryDirectory() as work_dir, judging(Findings()):
        options = TrainOptions(
            data=args.data,
            model=args.model,
            batch_size=args.batch_size,
            image_size=args.image_size,
            workers=args.workers[0],
            epochs=1000,
            launcher='pytorch' if ranks > 1 else 'none',
            out=work_dir,
            cfg_options={
                'train_cfg.val_interval': 1000,
                'default_hooks.checkpoint.interval': -1,
                'optim_wrapper.accumulative_counts': args.accumulate,
            },
        )
        plan, weights = plan_training(options)
        runner = build_runner(plan.cfg, ('train', 'val'), weights.checkpoint)
        runner.register_hook(RateHook())
        run(runner, 'the same command continues.')


if __name__ == '__main__':
    main()
