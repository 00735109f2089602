"""Trains the runs of a study, keeps their results as small JSON files, and regenerates the pages of docs/study.

    python projects/experiments/study/run.py projects/experiments/study/configs/cpu.py --jobs 2
    python projects/experiments/study/run.py projects/experiments/study/configs/cpu.py --score --keep
    python projects/experiments/study/run.py --pages

The first command can be interrupted and rerun: a finished run is not repeated, and a killed one loses at most an epoch.
The last one needs the kept results only.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from experiments.study.data import prepare_data
from experiments.study.figures import plot_curves, plot_summary
from experiments.study.page import Pages
from experiments.study.plan import Run, Study, load_study
from experiments.study.results import keep_results
from experiments.study.scoring import NAME, score_run
from experiments.study.training import is_finished, read_record, train_run
from tokennorm.base.messages import UserError, user_errors
from tokennorm.cli.command import command

HERE = Path(__file__).parent
DOCS = HERE.parents[2] / 'docs' / 'study'  # two pages of the site
TABLES = HERE / 'pages'  # all others
RESULTS = HERE / 'results'
PLANS = ('cpu', 'real', 'evidence', 'norms', 'start', 'longer', 'stems')
MAIN_PAGE = 'study.md'  # filled last, as it has the number of intervals of all pages


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', nargs='?', help='projects/experiments/study/configs/cpu.py, real.py, or your own')
    parser.add_argument('--work-dir', help='directory of all runs; default: work_dirs/study-NAME')
    parser.add_argument('--jobs', type=int, default=1, metavar='N', help='number of runs at the same time')
    parser.add_argument('--stages', nargs='+', metavar='STAGE', help='these stages only')
    parser.add_argument('--arms', nargs='+', metavar='ARM', help='these arms only')
    parser.add_argument('--seeds', nargs='+', type=int, metavar='SEED', help='these seeds only')
    parser.add_argument('--run', nargs=3, metavar=('STAGE', 'ARM', 'SEED'), help='train this run only, in this process')
    parser.add_argument('--score', action='store_true', help='evaluate finished runs per test image; train nothing')
    parser.add_argument('--keep', action='store_true', help='write finished runs to results/ here; train nothing')
    parser.add_argument('--pages', action='store_true', help='regenerate docs/study and pages/ here from results/')
    args = parser.parse_args(argv)
    if not args.config and not args.pages:
        parser.error('expected a config or --pages')
    if args.jobs < 1:
        parser.error('--jobs must be positive')
    return args


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    with user_errors(ValueError, OSError):
        if args.config:
            study = load_study(args.config, args.work_dir)
            if args.score:
                score_finished(study, args)
            if args.keep:
                print(f'kept: {", ".join(map(str, keep_results(study, RESULTS / study.config.stem)))}')
            if args.run:
                train_run(study, Run(args.run[0], args.run[1], int(args.run[2])))
            elif not (args.score or args.keep or args.pages):
                signal.signal(signal.SIGTERM, lambda *_: sys.exit('terminated'))  # which also ends the runs
                prepare_data(study.data)
                train_all(study, args)
        if args.pages:
            print(f'written: {", ".join(path.name for path in write_pages(DOCS, TABLES))}')


def chosen_runs(study: Study, args: argparse.Namespace) -> list[Run]:
    """The runs of `--stages`, `--arms` and `--seeds`, each once, as stages may share runs."""
    for option, known in (('stages', study.stages), ('arms', study.arms), ('seeds', study.seeds)):
        if unknown := set(getattr(args, option) or ()) - set(known):
            raise ValueError(f'--{option} {" ".join(map(str, sorted(unknown)))}: expected some of {list(known)}')
    chosen: dict[Path, Run] = {}
    for run in study.runs():
        asked = ((run.stage, args.stages), (run.arm, args.arms), (run.seed, args.seeds))
        if all(names is None or name in names for name, names in asked):
            chosen.setdefault(study.folder(run), run)
    return list(chosen.values())


def score_finished(study: Study, args: argparse.Namespace) -> None:
    """Writes the scores of the finished runs that have none."""
    for run in chosen_runs(study, args):
        if not (study.folder(run) / NAME).is_file() and (scores := score_run(study, run)):
            print(f'{run}: {scores["value"]:.4f} on {scores["images"]} test images', flush=True)


def train_all(study: Study, args: argparse.Namespace) -> None:
    """Trains until every run is finished, each in its own process and `--jobs` at the same time.

    Raises:
        UserError: if a run fails, with the end of its output.
    """
    waiting = [run for run in chosen_runs(study, args) if not is_finished(study.folder(run))]
    active: dict[Run, subprocess.Popen] = {}
    try:
        while waiting or active:
            for run, process in list(active.items()):
                if process.poll() is not None:
                    del active[run]
                    _tell_of_end(study, run, process.returncode)
            before = {run: study.before(run) for run in waiting}
            ready = [run for run, first in before.items() if first is None or is_finished(study.folder(first))]
            if waiting and not ready and not active:
                raise UserError(f'{waiting[0]} needs the weights of {before[waiting[0]]}, which is not finished')
            for run in ready[: args.jobs - len(active)]:
                waiting.remove(run)
                active[run] = _start(study, run)
            time.sleep(0.5)
    except KeyboardInterrupt:
        raise KeyboardInterrupt('Interrupted; the same command continues.') from None
    finally:
        for process in active.values():
            process.terminate()


def _start(study: Study, run: Run) -> subprocess.Popen:
    folder = study.folder(run)
    folder.mkdir(parents=True, exist_ok=True)
    print(f'{time.strftime("%H:%M:%S")} {run}: started or continued', flush=True)
    command = [sys.executable, __file__, study.config, '--work-dir', study.work_dir]
    command += ['--run', run.stage, run.arm, str(run.seed)]
    with (folder / 'output.txt').open('a', encoding='utf-8') as output:
        environment = {'OMP_NUM_THREADS': '1', **os.environ}  # the same sums whatever the number of cores
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


def _tell_of_end(study: Study, run: Run, returncode: int) -> None:
    folder = study.folder(run)
    if returncode:
        end = ''.join((folder / 'output.txt').open(encoding='utf-8', errors='replace').readlines()[-15:])
        raise UserError(f'{run} failed with status {returncode}; the end of {folder / "output.txt"}:\n\n{end}')
    record = read_record(folder)
    print(f'{time.strftime("%H:%M:%S")} {run}: {list(record["curve"].values())[-1]}, {record["seconds"] / 60:.1f} min')


def write_pages(docs: Path, tables: Path) -> list[Path]:
    """Fills the pages of two folders from the results, and draws their figures; returns the files."""
    studies = {name: load_study(HERE / 'configs' / f'{name}.py') for name in PLANS}
    pages = Pages(studies, RESULTS)
    paths = sorted((*docs.glob('*.md'), *tables.glob('*.md')), key=lambda path: (path.name == MAIN_PAGE, path.name))
    for path in paths:
        path.write_text(pages.fill(path.read_text(encoding='utf-8')), encoding='utf-8')
    plot_summary(pages, docs / 'summary.png')
    plot_curves(pages, 'evidence/pvt_mini', tables / 'curves.png')
    return [*paths, docs / 'summary.png', tables / 'curves.png']


if __name__ == '__main__':
    main()
