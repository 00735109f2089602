"""Training on a CPU with TokenNorm and with what one would use instead: processor time, memory, and AP.

    python benchmarks/trainers.py DATA [--ultralytics PYTHON] [--only TEXT] [--epochs 1 3] [--rounds 2] [--threads 1]
    python benchmarks/trainers.py DATA --minutes 5 --threads 2 [--ultralytics PYTHON]

DATA is a folder for `tokennorm train --data`. Each contender trains for the first and for the second number of epochs,
in processes of its own, without data workers. The difference is the time of the epochs between, with reading and
augmenting images; what is left of the first run is its start, validation and end. Contenders alternate, and the figure
is the median of the rounds. Each has the settings that its users get: image size, batch, frozen layers, rate; none
validates before its last epoch. Where weights would be downloaded, they are random, which does not change the time,
but AP. With `--minutes` each then trains for as many epochs as these minutes of processor time hold, and the AP on val
after the last one is another column, that of Ultralytics by its own metric.

Ultralytics needs an environment of its own: `uv venv X && uv pip install -p X/bin/python ultralytics`. On a CPU it
computes with one thread less than there are cores, whatever `--threads` says.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

Command = Callable[[int], list[str]]
NEVER = 10**6  # epochs between two validations
TORCHVISION = 'ssdlite320_mobilenet_v3_large', 'fasterrcnn_mobilenet_v3_large_320_fpn'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('data', type=Path)
    parser.add_argument('--ultralytics', type=Path, metavar='PYTHON')
    parser.add_argument('--only', default='', help='contenders with this text in their names')
    parser.add_argument('--epochs', type=int, nargs=2, default=[1, 3])
    parser.add_argument('--rounds', type=int, default=2)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--minutes', type=float, help='of processor time, for the AP after them')
    parser.add_argument('--train', nargs=2, metavar=('MODEL', 'EPOCHS'), help='train a model of torchvision, and end')
    args = parser.parse_args()
    os.environ |= dict.fromkeys(('OMP_NUM_THREADS', 'MKL_NUM_THREADS'), str(args.threads))  # of the trainers
    if args.train:
        train_torchvision(args.train[0], args.data, int(args.train[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        images, found = contenders(args, place)
        found = {name: contender for name, contender in found.items() if args.only in name}
        rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in found}
        aps: dict[tuple[str, int], float] = {}
        for _ in range(args.rounds):
            for name, (command, _) in found.items():
                first, second = (run(command(n), place) for n in args.epochs)
                aps |= {(name, n): one[2] for n, one in zip(args.epochs, (first, second), strict=True)}
                per_epoch = (second[0] - first[0]) / (args.epochs[1] - args.epochs[0])
                rows[name].append((images / per_epoch, first[0] - per_epoch * args.epochs[0], second[1]))
                print(name, *(f'{value:.1f}' for value in rows[name][-1]), file=sys.stderr, flush=True)
        lines = []
        for name, (command, weights) in found.items():
            speed, rest, memory = (statistics.median(column) for column in zip(*rows[name], strict=True))
            cells = [name, weights, f'{speed:.1f}', f'{rest:.0f}', f'{memory:.1f}']
            if args.minutes:
                epochs = max(1, round(60 * args.minutes * speed / images))
                ap = aps[name, epochs] if (name, epochs) in aps else run(command(epochs), place)[2]
                cells.append(f'{ap:.1f} ({epochs})')
                print(*cells, file=sys.stderr, flush=True)
            lines.append(f'| {" | ".join(cells)} |')
    titles = ['trainer', 'initial weights', 'images per second', 'start, validation, end: seconds', 'memory, GB']
    titles += [f'AP after {args.minutes:g} minutes (epochs)'] if args.minutes else []
    print(f'| {" | ".join(titles)} |', '|---' * len(titles) + '|', *lines, sep='\n')


def run(command: list[str], folder: Path) -> tuple[float, float, float]:
    """Runs a command in a new folder: its processor time in seconds, its greatest memory in GB, and its last AP."""
    place = Path(tempfile.mkdtemp(dir=folder))
    with (place / 'output.txt').open('w') as output:
        process = subprocess.Popen(command, cwd=place, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f'{" ".join(command)}\n{(place / "output.txt").read_text()[-3000:]}')
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6, last_ap(place)


def last_ap(place: Path) -> float:
    """AP from 0 to 100: of a line `AP VALUE`, else of mmengine's scalars; NaN without one."""
    from tokennorm.report.scalars import read_scalars

    lines = [line for line in (place / 'output.txt').read_text(errors='replace').splitlines() if line[:3] == 'AP ']
    if lines:
        return float(lines[-1][3:])
    for path in place.rglob('vis_data/scalars.json'):
        curve = read_scalars(path.parents[2]).get('coco/bbox_mAP', {})
        if curve:
            return 100 * curve[max(curve)]
    return float('nan')


def contenders(args: argparse.Namespace, folder: Path) -> tuple[int, dict[str, tuple[Command, str]]]:
    """Returns the number of training images, and by contender its command for a number of epochs, and its weights."""
    import tokennorm
    from tokennorm.datasets.discovery import find_splits

    splits = find_splits(args.data, ('train', 'val'))
    data, this, python = str(args.data.resolve()), str(Path(__file__).resolve()), sys.executable
    (mmdet,) = importlib.util.find_spec('mmdet').submodule_search_locations
    ours = [python, '-m', 'tokennorm', 'train', '--data', data, '--model', 'trial', '--workers', '0', '--out', 'run']
    ours += ['--cfg-options', f'train_cfg.val_interval={NEVER}', '--epochs']
    found: dict[str, tuple[Command, str]] = {
        f'tokennorm {tokennorm.__version__}': (followed_by_epochs(*ours), 'backbone of ImageNet'),
        "mmdet's tools/train.py, the same config": (
            lambda epochs: [python, f'{mmdet}/.mim/tools/train.py', str(written_config(args.data, epochs, folder))],
            'backbone of ImageNet',
        ),
    }
    for name in TORCHVISION:
        train = followed_by_epochs(python, this, data, '--threads', str(args.threads), '--train', name)
        found[f'torchvision, {name}'] = (train, 'random')
    if args.ultralytics:
        for name in ('train', 'val'):
            write_yolo(splits[name], folder / 'yolo' / name)
        names = json.dumps(dict(enumerate(category['name'] for category in splits['train'].content['categories'])))
        settings = f'path: {folder}/yolo\ntrain: train/images\nval: val/images\nnames: {names}\n'
        (folder / 'yolo' / 'data.yaml').write_text(settings)
        for size in (320, 640):
            options = f"data='{folder}/yolo/data.yaml', imgsz={size}, device='cpu', workers=0, amp=False, plots=False"
            options += ', val=False, epochs=int(sys.argv[1])'
            script = f"import sys, ultralytics; done = ultralytics.YOLO('yolo11n.yaml').train({options})"
            train = followed_by_epochs(str(args.ultralytics), '-c', f"{script}; print('AP', 100 * done.box.map)")
            found[f'Ultralytics, yolo11n, {size} pixels'] = (train, 'random')
    return len(splits['train'].content['images']), found


def followed_by_epochs(*command: str) -> Command:
    return lambda epochs: [*command, str(epochs)]


def written_config(data: Path, epochs: int, folder: Path) -> Path:
    """Writes the config with which `tokennorm train` would train so many epochs, its schedule included."""
    from tokennorm.engine.lock import one_run
    from tokennorm.engine.runner import build_runner
    from tokennorm.engine.training import SPLITS, plan_training
    from tokennorm.findings import Findings, judging
    from tokennorm.plan.options import TrainOptions
    from tokennorm.plan.schedule import fit_to_training

    place, never = Path(tempfile.mkdtemp(dir=folder)), {'train_cfg.val_interval': NEVER}
    options = TrainOptions(data=data, model='trial', workers=0, epochs=epochs, out=place, cfg_options=never)
    with one_run(), judging(Findings()), redirect_stdout(sys.stderr):
        plan, weights = plan_training(options)
        fit_to_training(build_runner(plan.cfg, SPLITS, weights.checkpoint), plan, options)
    (config,) = place.glob('*.py')
    return config


def write_yolo(split: object, folder: Path) -> None:
    """Writes a split in YOLO's format, with links to its images."""
    content = split.content
    labels = {category['id']: index for index, category in enumerate(content['categories'])}
    for name in ('images', 'labels'):
        (folder / name).mkdir(parents=True)
    for image in content['images']:
        path = (split.image_dir / image['file_name']).resolve()
        (folder / 'images' / path.name).symlink_to(path)
        lines = []
        for one in content['annotations']:
            if one['image_id'] == image['id']:
                x, y, w, h = one['bbox']
                place = (
                    (x + w / 2) / image['width'],
                    (y + h / 2) / image['height'],
                    w / image['width'],
                    h / image['height'],
                )
                lines.append(f'{labels[one["category_id"]]} ' + ' '.join(map(str, place)) + '\n')
        (folder / 'labels' / path.name).with_suffix('.txt').write_text(''.join(lines))


def train_torchvision(name: str, data: Path, epochs: int) -> None:
    """Trains as torchvision's references/detection: SGD, steps, flips, batches of two. Prints the AP on val."""
    import torch
    import torchvision
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
    from torch.utils.data import DataLoader
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms.functional import hflip

    from tokennorm.datasets.discovery import find_splits

    splits = find_splits(data, ('train', 'val'))
    split = splits['train']
    objects: dict[object, list[list[float]]] = {image['id']: [] for image in split.content['images']}
    labels: dict[object, list[int]] = {image['id']: [] for image in split.content['images']}
    index = {category['id']: i + 1 for i, category in enumerate(split.content['categories'])}
    for one in split.content['annotations']:
        x, y, w, h = one['bbox']
        objects[one['image_id']].append([x, y, x + w, y + h])
        labels[one['image_id']].append(index[one['category_id']])

    def load(batch: list[dict]) -> tuple[list, list]:
        pixels, targets = [], []
        for image in batch:
            picture = decode_image(str(split.image_dir / image['file_name']), ImageReadMode.RGB) / 255
            boxes = torch.tensor(objects[image['id']], dtype=torch.float32).reshape(-1, 4)
            if torch.rand(()) < 0.5:
                picture, boxes = hflip(picture), boxes[:, [2, 1, 0, 3]] * torch.tensor([-1, 1, -1, 1])
                boxes[:, ::2] += picture.shape[-1]
            pixels.append(picture)
            targets.append(dict(boxes=boxes, labels=torch.tensor(labels[image['id']])))
        return pixels, targets

    images = [image for image in split.content['images'] if objects[image['id']]]
    model = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None, num_classes=len(index) + 1)
    if name == 'fasterrcnn_mobilenet_v3_large_320_fpn':  # three of six stages are trained from ImageNet weights
        for stage in [model.backbone.body[str(i)] for i in range(7)]:
            stage.requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.0025, momentum=0.9, weight_decay=1e-4)
    steps = torch.optim.lr_scheduler.MultiStepLR(optimizer, [round(epochs * end / 26) for end in (16, 22)])
    for _ in range(epochs):
        for batch in DataLoader(images, 2, shuffle=True, collate_fn=load):
            optimizer.zero_grad()
            loss = sum(model(*batch).values())
            loss.backward()
            optimizer.step()
        steps.step()
    ids, detections = {label: category for category, label in index.items()}, []
    for image in splits['val'].content['images']:
        picture = decode_image(str(splits['val'].image_dir / image['file_name']), ImageReadMode.RGB) / 255
        with torch.no_grad():
            (found,) = model.eval()([picture])
        found['boxes'][:, 2:] -= found['boxes'][:, :2]
        for box, label, score in zip(*(found[key].tolist() for key in ('boxes', 'labels', 'scores')), strict=True):
            detections.append(dict(image_id=image['id'], category_id=ids[label], bbox=box, score=score))
    truth = COCO()
    truth.dataset = splits['val'].content
    truth.createIndex()
    value = 0.0
    if detections:
        evaluation = COCOeval(truth, truth.loadRes(detections), 'bbox')
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        value = 100 * evaluation.stats[0]
    print('AP', value)


if __name__ == '__main__':
    main()
