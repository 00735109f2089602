"""Everything that waits for a GPU, or for many cores, in at most eight minutes.

    python benchmarks/gpu.py --out FOLDER [--data FOLDER]            # on a machine with a GPU
    python benchmarks/gpu.py --out FOLDER [--data FOLDER] --cpu      # on a machine with many cores
    python benchmarks/gpu.py --out FOLDER --rehearse [--cpu]         # anywhere: that each part runs, in small sizes

Parts are in order of worth. Each is a process with a time limit. When it ends, also if it failed, its outcome and its
last lines are added to FOLDER/gpu.jsonl and printed. `benchmarks/carry.sh` packs what a machine with PyTorch alone
lacks. `--data` is for `tokennorm train --data`; without it images of shapes are made. A rehearsal has no GPU: Triton's
kernels run in its interpreter, and compiled contenders are left out.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RETINANETS = ['retinanet_swin-t-p4-w7_fpn_1x_coco', 'retinanet_swin-t-p4-w7-dtn_fpn_1x_coco']
KERNELS = ['tests/experiments/test_gpu_kernels.py', 'tests/ops/test_dtn_in_place.py']
Result = dict[str, object]
SHOWN = 80  # last lines of a part
MACHINE = (
    'import os, platform, numpy, cv2, torch, torchvision\n'
    'print("Python", platform.python_version(), "torch", torch.__version__, "torchvision", torchvision.__version__)\n'
    'print("numpy", numpy.__version__, "OpenCV", cv2.__version__, torch.backends.cpu.get_cpu_capability())\n'
    'print(os.cpu_count(), "cores", next((s for s in open("/proc/cpuinfo") if "model name" in s), ""))\n'
    'if torch.cuda.is_available():\n'
    '    print(torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory // 2**20, "MiB")\n'
)
# Runs a script where DTN is computed in Triton.
IN_TRITON = (
    'import runpy, sys, experiments.gpu_kernels\n'
    'del sys.argv[0]\n'
    'sys.path.insert(0, "benchmarks")\n'
    'runpy.run_path(sys.argv[0], run_name="__main__")\n'
)


def gpu_parts(data: str, work: Path, rehearse: bool) -> list[tuple[str, int, list[str]]]:
    """Names, limits in seconds, and arguments of Python."""
    device = 'cpu' if rehearse else 'cuda'
    tests = [
        str(path.relative_to(ROOT))
        for folder in ('tests', 'projects')
        for path in sorted((ROOT / folder).rglob('test_*.py'))
        if 'mark.gpu' in path.read_text(encoding='utf-8') and str(path.relative_to(ROOT)) not in KERNELS
    ]
    pytest = ['-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-n', '2' if rehearse else '8']
    marks = ['-m', 'not slow and not gpu' if rehearse else 'gpu and not slow']
    size = ['--batch', '1', '--size', '64', '--seconds', '0'] if rehearse else ['--batch', '64', '--seconds', '4']
    bfloat16 = ['--device', device, '--dtype', 'bfloat16', '--out', str(work)]
    backbone = ['benchmarks/dtn_in_backbones.py', *bfloat16, *size]
    detectors = ['--size', '64', '96', '--rounds', '1'] if rehearse else ['--size', '800', '1344', '--amp']
    detector = ['benchmarks/detector_step.py', *RETINANETS, '--device', device, *detectors, '--batch-size', '2']
    small = ['--image-size', '64', '--epochs', '1', '--seed', '0'] if rehearse else ['--seed', '0']
    shapes = ['--only', 'ViT-S, 224', '--seconds', '0'] if rehearse else ['--only', '800', '--seconds', '0.3']

    def train(name: str, *options: str) -> list[str]:
        return ['-m', 'tokennorm', 'train', '--data', data, '--work-dir', str(work / name), *options, *small]

    def in_triton(arguments: list[str]) -> list[str]:
        return ['-c', IN_TRITON, *arguments]

    rank = train('rank', '--model', 'mini', '--epochs', '1', '--launcher', 'pytorch')
    default = ['--model', 'pvtv2-b2'] if rehearse else []
    pvt, swin = ([*backbone, '--backbone', name] for name in ('PVT', 'Swin'))
    few = ['--only', 'LN', 'DTN']
    return [
        ('kernels against the transcription', 120, [*pytest, *marks, *KERNELS]),
        ('kernels against LayerNorm', 100, ['benchmarks/dtn_gpu.py', '--rehearse' if rehearse else '--seconds=0.3']),
        ('PVT-T', 40, pvt),
        ('PVT-T, Triton', 40, in_triton([*pvt, *few])),
        ('Swin-T', 40, swin),
        ('Swin-T, Triton', 40, in_triton([*swin, *few])),
        ('RetinaNet on Swin-T', 60, detector),
        ('RetinaNet on Swin-T, Triton', 60, in_triton(detector)),
        ('one rank', 70, ['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=1', *rank]),
        ('PVT-T, compiled', 100, [*pvt, *few, *([] if rehearse else ['--compile'])]),
        ('training, default of a GPU, 2 epochs', 100, train('default', *default, '--init', 'none', '--epochs', '2')),
        ('other tests', 100, [*pytest, *marks, '-k', 'not paste', *tests]),
        ('DTN at 800 x 1344', 70, ['benchmarks/dtn.py', *bfloat16, *shapes]),
        ('operators of mmcv', 60, ['projects/mmcv_ops/benchmark.py', '--device', device]),
    ]  # fmt: skip


def cpu_parts(data: str, work: Path, rehearse: bool) -> list[tuple[str, int, list[str]]]:
    cores = ['benchmarks/cores.py', '--data', data]
    if rehearse:
        cores += ['--iterations', '1', '--warm-up', '1', '--threads', '1', '--workers', '0', '--ranks', '2']
        cores += ['--image-size', '64']
    return [('images per second', 240, cores)]


def run_part(
    name: str, limit: float, arguments: list[str], environment: dict[str, str], log: Path
) -> dict[str, object]:
    """Name, outcome, seconds and last lines of a part."""
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
    lines = [line for line in lines if line.strip()][-SHOWN:]
    return dict(part=name, outcome=outcome, seconds=round(time.perf_counter() - start), lines=lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--out', type=Path, required=True, help='folder that gets gpu.jsonl')
    parser.add_argument('--data', type=Path)
    parser.add_argument('--cpu', action='store_true', help='the parts for many cores')
    parser.add_argument('--rehearse', action='store_true', help='small sizes, on the CPU')
    parser.add_argument('--only', default='', help='parts whose name contains this')
    parser.add_argument('--seconds', type=float, default=460, help='no part runs longer than this from the start')
    args = parser.parse_args()
    start = time.perf_counter()
    args.out.mkdir(parents=True, exist_ok=True)

    def keep(result: Result) -> None:
        with (args.out / 'gpu.jsonl').open('a', encoding='utf-8') as file:
            file.write(f'{json.dumps(result)}\n')
        print(f'### {result["part"]}: {result["outcome"]}, {result["seconds"]} s\n', *result['lines'], '', sep='\n')
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        paths = [str(ROOT / 'projects'), str(ROOT), os.environ.get('PYTHONPATH', '')]
        environment = os.environ | {
            'PYTHONPATH': os.pathsep.join(filter(None, paths)),
            'PYTHONUNBUFFERED': '1',
            'TOKENNORM_CACHE': str(work / 'cache'),
        }
        environment['TRITON_INTERPRET'] = '1' if args.rehearse else '0'
        if args.rehearse:
            environment['CUDA_VISIBLE_DEVICES'] = ''
        data, parts = args.data, [('machine', 60, ['-c', MACHINE])]
        if data is None:
            data = work / 'shapes'
            sizes = 'num_train=4, num_val=2, image_size=64' if args.rehearse else 'num_train=200, num_val=50'
            made = f'from experiments.shapes import make_shapes_dataset; make_shapes_dataset({str(data)!r}, {sizes})'
            parts.append(('images', 60, ['-c', made]))
        parts += (cpu_parts if args.cpu else gpu_parts)(str(data.resolve()), work, args.rehearse)
        for name, limit, arguments in parts:
            left = args.seconds - (time.perf_counter() - start)
            if args.only not in name and name != 'images':
                continue
            if left < 10:
                keep(dict(part=name, outcome='no time left', seconds=0, lines=[]))
                continue
            limit = min(limit * (5 if args.rehearse else 1), left)
            keep(run_part(name, limit, arguments, environment, work / 'log'))
    print(f'Everything took {time.perf_counter() - start:.0f} s.')


if __name__ == '__main__':
    main()
