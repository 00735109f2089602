"""Runs a study that compares LayerNorm with DTN and the plain stem with Dual PatchNorm, and writes its report.

`python projects/experiments/study/run.py projects/experiments/study/configs/cpu.py --jobs 2` can be interrupted and
rerun. Each run is trained in pieces of a few minutes. A finished run is not repeated, and a killed one loses at most
its last epoch.

The report can be regenerated without training:

    python projects/experiments/study/run.py projects/experiments/study/configs/real.py \\
        --report --from docs/study/results/real --docs docs/study
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from experiments.study.data import prepare_data
from experiments.study.figures import value_at
from experiments.study.page import INSIDE, write_report
from experiments.study.plan import Run, Study, load_study
from experiments.study.records import is_finished, read_record
from experiments.study.results import keep_results, read_results, read_runs
from tokennorm.cli.arguments import ConfigOptions
from tokennorm.cli.command import command
from tokennorm.messages import UserError, user_errors

DTN_ONLY = ('lambda', 'positions')  # figures without LN


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', help='projects/experiments/study/configs/cpu.py, real.py, or your own')
    parser.add_argument('--work-dir', help='directory of all runs and the report; default: work_dirs/study-NAME')
    parser.add_argument('--data-from', default='data', metavar='DIR', help='folder of downloaded datasets')
    parser.add_argument('--prepare', action='store_true', help='prepare the data only')
    parser.add_argument('--jobs', type=int, default=1, metavar='N', help='number of runs at the same time')
    parser.add_argument('--minutes', type=float, default=8, metavar='MIN', help='time of a piece (at least one epoch)')
    parser.add_argument('--pieces', type=int, metavar='N', help='stop after this many pieces')
    parser.add_argument('--stages', nargs='+', metavar='STAGE', help='these stages only')
    parser.add_argument('--arms', nargs='+', metavar='ARM', help='these arms only')
    parser.add_argument('--dry-run', action='store_true', help='two iterations of every stage and arm, one seed')
    parser.add_argument(
        '--corrupted', type=int, metavar='N', help='evaluate finished classifiers on N corrupted images each'
    )
    parser.add_argument(
        '--score', action='store_true', help='evaluate finished runs per test image, which --keep needs for intervals'
    )
    parser.add_argument(
        '--report', action='store_true', help='write the report of the finished runs, and train nothing'
    )
    parser.add_argument(
        '--keep', type=Path, metavar='DIR', help='also write the finished runs there, as small JSON files'
    )
    parser.add_argument(
        '--from', dest='results', type=Path, metavar='DIR', help='with --report: read what --keep wrote, not the runs'
    )
    parser.add_argument('--docs', type=Path, metavar='DIR', help='also write the report and its figures there')
    parser.add_argument(
        '--cfg-options', nargs='+', action=ConfigOptions, help="entries of the study's config, key=value"
    )
    parser.add_argument('--piece', nargs=3, metavar=('STAGE', 'ARM', 'SEED'), help='train one piece of one run only')
    args = parser.parse_args(argv)
    if args.minutes <= 0 or any(n is not None and n < 1 for n in (args.jobs, args.pieces, args.corrupted)):
        parser.error('--jobs, --minutes, --pieces and --corrupted must be positive')
    if args.results and (not args.report or not args.docs or args.keep):
        parser.error('--from needs --report and --docs, and excludes --keep')
    return args


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('terminated'))  # lets the pieces be ended too
    with user_errors(ValueError, OSError):
        study = load_study(args.config, args.work_dir, args.cfg_options, dry=args.dry_run)
        if args.piece:
            train_piece(study, args)
            return
        if args.corrupted is not None:
            evaluate_corrupted(study, args)
        elif args.score:
            score_finished(study, args)
        elif not args.report:
            prepare_data(study.data, args.data_from)
            if args.prepare:
                return
            train_all(study, args, argv)
        records = read_results(study, args.results) if args.results else read_runs(study)
        if args.keep:
            print('kept: ' + ', '.join(map(str, keep_results(study, args.keep))))
    if not args.results:
        print(f'report: {write_report(study, records, study.work_dir)[0]}')
    if args.docs:
        print('written: ' + ', '.join(map(str, write_report(study, records, args.docs))))
        if not args.results:
            draw_inside(study, args.docs)


def draw_inside(study: Study, folder: Path) -> None:
    """Draws the `INSIDE` figures of a stage, first seed, into a folder, if the runs with LN and DTN have weights."""
    runs = [Run(study.inside, arm, study.seeds[0]) for arm in ('DTN', 'LN')]
    if not study.inside or not all((study.folder(run) / 'weights.pth').is_file() for run in runs):
        return
    models = []
    for run in runs:
        config = study.work_dir / 'inside' / f'{run.arm}.py'
        config.parent.mkdir(exist_ok=True)
        study.run_config(run).dump(config)
        models.append([config, study.folder(run) / 'weights.pth'])
    for figure in INSIDE:
        what = models[0] if figure in DTN_ONLY else [*models[0], '--against', *models[1]]
        if figure == 'lambda':
            what = [study.folder(study.before(runs[0]) or runs[0])]
        command = [
            sys.executable,
            '-m',
            'tokennorm',
            'analyze',
            figure,
            *what,
            '--out',
            folder / f'inside_{figure}.png',
        ]
        if subprocess.run(command).returncode:
            raise UserError(f'{figure} could not be drawn, see above')


def train_piece(study: Study, args: argparse.Namespace) -> None:
    """Trains one piece in this process."""
    from experiments.study.pieces import run_piece

    stage, arm, seed = args.piece
    run = Run(stage, arm, int(seed) if seed.isdecimal() else -1)
    if run not in set(study.runs()):
        raise ValueError(
            f'--piece {stage} {arm} {seed}: stages {list(study.stages)}, arms {list(study.arms)}, {study.seeds}'
        )
    run_piece(study, run, args.minutes)


def chosen_runs(study: Study, args: argparse.Namespace) -> list[Run]:
    """The runs of `--stages` and `--arms`, each once, as stages may share runs."""
    stages, arms = args.stages or list(study.stages), args.arms or list(study.arms)
    for option, names, known in (('--stages', stages, study.stages), ('--arms', arms, study.arms)):
        if not set(names) <= set(known):
            raise ValueError(f'{option} {" ".join(names)}: expected some of {list(known)}')
    chosen: dict[Path, Run] = {}
    for run in study.runs():
        if run.stage in stages and run.arm in arms:
            chosen.setdefault(study.folder(run), run)
    return list(chosen.values())


def evaluate_corrupted(study: Study, args: argparse.Namespace) -> None:
    """Evaluates the finished runs whose weights are in the work directory."""
    from experiments.study.corrupted import add_corrupted

    for run in chosen_runs(study, args):
        accuracies = add_corrupted(study, run, args.corrupted)
        if accuracies is not None:
            print(f'{run}: ' + ', '.join(f'{name} {value:.4g}' for name, value in accuracies.items()), flush=True)


def score_finished(study: Study, args: argparse.Namespace) -> None:
    """Writes the scores of the finished runs that have none."""
    from experiments.study.scoring import NAME, score_run

    for run in chosen_runs(study, args):
        if not (study.folder(run) / NAME).is_file() and (scores := score_run(study, run)):
            print(f'{run}: {scores["value"]:.4f} on {scores["images"]} test images', flush=True)


def train_all(study: Study, args: argparse.Namespace, argv: list[str]) -> None:
    """Trains pieces until every run is finished, each in its own process and `--jobs` at the same time.

    Raises:
        UserError: if a piece fails, with the end of its output.
    """
    wanted = chosen_runs(study, args)
    started = 0
    active: dict[Run, subprocess.Popen] = {}
    try:
        while True:
            for run, process in list(active.items()):
                if process.poll() is not None:
                    del active[run]
                    _tell_of_end(study, run, process.returncode)
            waiting = [run for run in wanted if run not in active and not is_finished(study.folder(run))]
            to_do = len(waiting) + len(active)
            ready = [
                run for run in waiting if study.before(run) is None or is_finished(study.folder(study.before(run)))
            ]
            for run in ready[: args.jobs - len(active)]:
                if args.pieces is None or started < args.pieces:
                    active[run] = _start(study, run, argv)
                    started += 1
                    print(f'{time.strftime("%H:%M:%S")} {run}: started or continued ({to_do} to do)', flush=True)
            if not active:
                return
            time.sleep(0.5)
    except KeyboardInterrupt:
        raise KeyboardInterrupt('Interrupted; the same command continues.') from None
    finally:
        for process in active.values():
            process.terminate()


def _start(study: Study, run: Run, argv: list[str]) -> subprocess.Popen:
    folder = study.folder(run)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, *argv, '--piece', run.stage, run.arm, str(run.seed)]
    with (folder / 'output.txt').open('a') as output:
        environment = {'OMP_NUM_THREADS': '1', **os.environ}  # the same sums whatever the number of cores
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


def _tell_of_end(study: Study, run: Run, returncode: int) -> None:
    folder = study.folder(run)
    if returncode:
        end = ''.join((folder / 'output.txt').open(errors='replace').readlines()[-15:])
        raise UserError(f'{run} failed with status {returncode}; the end of {folder / "output.txt"}:\n\n{end}')
    record = read_record(folder)
    epoch = max(map(int, record['curve']), default=0)
    metric = study.stages[run.stage].metric
    value = value_at(record, epoch, metric) if epoch else float('nan')
    what = 'finished' if record['finished'] else 'piece finished'
    print(
        f'{time.strftime("%H:%M:%S")} {run}: {what}, epoch {epoch} of {record["epochs"]}, {metric} {value:.3f}, '
        f'{record["seconds"] / 60:.1f} min so far',
        flush=True,
    )


if __name__ == '__main__':
    main()
