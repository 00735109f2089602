"""Wall time of `tokennorm predict` by how OpenMP's threads wait, alone and with all cores but one busy.

    python benchmarks/openmp_waiting.py WORK_DIR FOLDER [--images 20] [--rounds 1]

WORK_DIR has a trained detector, which draws the first images of FOLDER. Settings take turns; the figure is the least
time of the rounds, in seconds, with the seconds that importing takes. 300000 is the value that libgomp has by itself.
`benchmarks/cores.py --busy 1` is the same for training.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import busy_programs, print_table

from tokennorm.base.cores import available_cores
from tokennorm.datasets.image_files import list_images

SETTINGS = {
    'GOMP_SPINCOUNT=300000': {'GOMP_SPINCOUNT': '300000'},
    'GOMP_SPINCOUNT=20000': {'GOMP_SPINCOUNT': '20000'},
    'GOMP_SPINCOUNT=1000': {'GOMP_SPINCOUNT': '1000'},
    'OMP_WAIT_POLICY=passive': {'OMP_WAIT_POLICY': 'passive'},
    'OMP_NUM_THREADS=1': {'OMP_NUM_THREADS': '1'},
}


def seconds(arguments: list[str], setting: dict[str, str], busy: int) -> float:
    """Returns the wall time of one command beside `busy` programs that compute without a pause."""
    names = ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY', 'OMP_NUM_THREADS')
    env = {key: value for key, value in os.environ.items() if key not in names} | setting
    with busy_programs(busy):
        start = time.perf_counter()
        command = [sys.executable, '-m', 'tokennorm', *arguments]
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('work_dir')
    parser.add_argument('folder', type=Path)
    parser.add_argument('--images', type=int, default=20)
    parser.add_argument('--rounds', type=int, default=1)
    args = parser.parse_args()
    least = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in list_images(args.folder)[: args.images]:
            (Path(folder) / path.name).symlink_to(path.resolve())
        command = ['predict', args.work_dir, folder, '--out', f'{folder}/drawn']
        for _ in range(args.rounds):
            for busy in (0, available_cores() - 1):
                for name, setting in SETTINGS.items():
                    least[name, busy] = min(seconds(command, setting, busy), least.get((name, busy), float('inf')))
    heads = {0: 'quiet', available_cores() - 1: 'busy'}
    print_table([{'': name} | {head: f'{least[name, busy]:.1f}' for busy, head in heads.items()} for name in SETTINGS])


if __name__ == '__main__':
    main()
