"""Everything that waits for a GPU, or for many cores, in some minutes: one block of text.

    python benchmarks/gpu.py --data FOLDER [--out FILE]          # on a machine with a GPU
    python benchmarks/gpu.py --data FOLDER --cpu [--out FILE]    # on a machine with many cores
    python benchmarks/gpu.py --data FOLDER --smoke [--cpu]       # anywhere: that each step runs, in small sizes

Each step is a process with a time limit. What it printed is printed when it ends, also where it failed, and the rest go
on. `benchmarks/carry.sh` packs what a machine with PyTorch alone lacks. FOLDER is for `tokennorm train --data`.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RETINANETS = [f'retinanet_pvt-t{suffix}_fpn_1x_coco' for suffix in ('', '-dtn', '-dpn', '-dtn-dpn')]
SHOWN = 60  # last lines of a step
CARD = (
    'import os, platform, numpy, cv2, torch, torchvision\n'
    'print("Python", platform.python_version(), "torch", torch.__version__, "torchvision", torchvision.__version__)\n'
    'print("numpy", numpy.__version__, "OpenCV", cv2.__version__, torch.backends.cpu.get_cpu_capability())\n'
    'print(os.cpu_count(), "cores", next((s for s in open("/proc/cpuinfo") if "model name" in s), ""))\n'
)


def gpu_steps(data: str, work: Path, smoke: bool) -> list[tuple[str, int, list[str]]]:
    """Names, limits in seconds, and arguments of Python."""
    device = 'cpu' if smoke else 'cuda'
    tests = [
        str(path.relative_to(ROOT))
        for folder in ('tests', 'projects')
        for path in sorted((ROOT / folder).rglob('test_*.py'))
        if 'mark.gpu' in path.read_text(encoding='utf-8')
    ]
    marks = 'not slow and not gpu' if smoke else 'gpu and not slow'
    shapes = ['--only', 'ViT-S, 224' if smoke else '800', '--seconds', '0' if smoke else '0.3', '--out', str(work)]
    size = ['--batch', '1', '--size', '64', '--seconds', '0'] if smoke else ['--batch', '64', '--seconds', '4']
    backbone = ['benchmarks/dtn_in_backbones.py', '--device', device, '--dtype', 'bfloat16', '--out', str(work), *size]
    detectors = ['--size', '64', '96', '--rounds', '1'] if smoke else ['--size', '800', '1333', '--amp']
    detector = ['benchmarks/detector_step.py', *RETINANETS, '--device', device, *detectors, '--batch-size']
    small = ['--image-size', '64', '--epochs', '1', '--seed', '0'] if smoke else ['--seed', '0']

    def train(name: str, *options: str) -> list[str]:
        return ['-m', 'tokennorm', 'train', '--data', data, '--work-dir', str(work / name), *options, *small]

    default = ['--model', 'pvtv2-b2'] if smoke else []
    rank = train('rank', '--model', 'mini', '--epochs', '1', '--launcher', 'pytorch')
    launched = ['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=1', *rank]
    return [
        ('tests', 100, ['-m', 'pytest', '-q', '-n', '2' if smoke else '8', '-m', marks, '-k', 'not paste', *tests]),
        ('training, default of a GPU, 2 epochs', 100, train('default', *default, '--init', 'none', '--epochs', '2')),
        ('training, PVT-mini with DTN, 2 epochs', 70, train('mini', '--model', 'mini', '--epochs', '2')),
        ('training, one rank, 1 epoch', 70, launched),
        ('detectors, 2 images', 70, [*detector, '2']),
        ('detectors, 4 images', 60, [*detector, '4']),
        ('DTN', 70, ['benchmarks/dtn.py', '--device', device, '--dtype', 'bfloat16', *shapes]),
        ('DTN in PVT-T', 40, [*backbone, '--backbone', 'PVT']),
        ('DTN in Swin-T', 40, [*backbone, '--backbone', 'Swin']),
        ('DTN, compiled', 90, ['benchmarks/dtn_gpu.py', '--help' if smoke else '--seconds=0.3']),
        ('DTN in PVT-T, compiled', 110, [*backbone, '--backbone', 'PVT', '--compile', '--only', 'LN', 'DTN']),
        ('operators of mmcv', 60, ['projects/mmcv_ops/benchmark.py', '--device', device]),
    ]  # fmt: skip


def cpu_steps(data: str, work: Path, smoke: bool) -> list[tuple[str, int, list[str]]]:
    cores = ['benchmarks/cores.py', '--data', data]
    if smoke:
        cores += ['--iterations', '1', '--warm-up', '1', '--threads', '1', '--workers', '0', '--ranks', '2']
        cores += ['--image-size', '64']
    return [('images per second', 240, cores)]


def run_step(name: str, limit: float, arguments: list[str], environment: dict[str, str], log: Path) -> str:
    """The lines of a step: title with seconds and outcome, and the last ones that it printed."""
    start = time.perf_counter()
    with log.open('wb') as file:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
            outcome = 'ok' if code == 0 else f'FAILED with status {code}'
        except subprocess.TimeoutExpired:
            outcome = f'STOPPED at its limit of {limit:.0f} s'
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # workers and ranks, too
        process.wait()
    lines = [line.rpartition('\r')[2] for line in log.read_text(encoding='utf-8', errors='replace').split('\n')]
    shown = '\n'.join([line for line in lines if line.strip()][-SHOWN:])
    return f'### {name}: {outcome}, {time.perf_counter() - start:.0f} s\n\n```\n{shown}\n```\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--data', type=Path, required=True)
    parser.add_argument('--cpu', action='store_true', help='the steps for many cores')
    parser.add_argument('--smoke', action='store_true', help='small sizes, on the CPU')
    parser.add_argument('--out', type=Path, help='a file that gets the same text')
    parser.add_argument('--only', default='', help='steps whose name contains this')
    parser.add_argument('--seconds', type=float, default=420, help='no step runs longer than this from the start')
    args = parser.parse_args()
    start = time.perf_counter()

    def tell(text: str) -> None:
        print(text, flush=True)
        if args.out:
            with args.out.open('a', encoding='utf-8') as file:
                file.write(f'{text}\n')

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        paths = [str(ROOT / 'projects'), str(ROOT), os.environ.get('PYTHONPATH', '')]
        environment = os.environ | {
            'PYTHONPATH': os.pathsep.join(filter(None, paths)),
            'PYTHONUNBUFFERED': '1',
            'TOKENNORM_CACHE': str(work / 'cache'),
        }
        if args.smoke:
            environment['CUDA_VISIBLE_DEVICES'] = ''
        data = str(args.data.resolve())
        steps = (cpu_steps if args.cpu else gpu_steps)(data, work, args.smoke)
        tell(run_step('machine', 60, ['-c', CARD], environment, work / 'log'))
        if not args.smoke and not args.cpu:
            fields = '--query-gpu=name,driver_version,memory.total,clocks.sm,temperature.gpu'
            done = subprocess.run(['nvidia-smi', fields, '--format=csv'], capture_output=True, text=True)
            tell(done.stdout + done.stderr)
        for name, limit, arguments in steps:
            left = args.seconds - (time.perf_counter() - start)
            if args.only not in name:
                continue
            if left < 10:
                tell(f'### {name}: no time left\n')
                continue
            tell(run_step(name, min(limit * (5 if args.smoke else 1), left), arguments, environment, work / 'log'))
    tell(f'Everything took {time.perf_counter() - start:.0f} s.')


if __name__ == '__main__':
    main()
