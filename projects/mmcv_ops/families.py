"""Builds one config per family of mmdet, mmrotate or mmocr's text detectors, without weights, and runs two steps.

    python families.py mmrotate [--only s2anet redet] [--size 256]

A step of training (losses and backward pass) and a prediction, on random images and boxes. Prints per family what
ran and which operators of `mmcv.ops` it called. Needs the package, with its configs, and any mmcv.
"""

import argparse
import collections
import collections.abc
import sys
import time
import traceback
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

PACKAGES = {'mmdet': '', 'mmrotate': '', 'mmocr': 'textdet'}
NO_DETECTORS = {'_base_', 'common', 'misc', 'dsdl'}  # folders


def first_configs(package: str) -> dict[str, Path]:
    """Returns the shortest name of a config per folder: most often the base model."""
    root = Path(find_spec(package).origin).parent / '.mim' / 'configs' / PACKAGES[package]
    files = {folder.name: sorted(folder.glob('*.py'), key=lambda p: (len(p.name), p.name)) for folder in root.iterdir()}
    files = {name: [path for path in paths if not path.stem.endswith('_tta')] for name, paths in files.items()}
    return {name: paths[0] for name, paths in sorted(files.items()) if paths and name not in NO_DETECTORS}


def without_weights(config) -> None:
    """Removes initializations from files, in place."""
    if isinstance(config, dict):
        for key in ('init_cfg', 'pretrained', 'load_from', 'init_args'):
            value = config.get(key)
            if isinstance(value, str) or (isinstance(value, dict) and value.get('type') == 'Pretrained'):
                config[key] = None
        for value in config.values():
            without_weights(value)
    elif isinstance(config, (list, tuple)):
        for value in config:
            without_weights(value)


def batch(package: str, config, size: int) -> dict:
    """Returns two images with objects."""
    text = str(config)
    if package == 'mmocr':
        return text_batch(size)
    make = import_module(f'{package}.testing').demo_mm_inputs
    rotated = (
        dict(use_box_type=True, use_qbox='ConvertBoxType' not in str(config.train_dataloader))
        if package == 'mmrotate'
        else {}
    )
    if package == 'mmdet':
        rotated = dict(with_mask='mask' in text.lower(), with_semantic='semantic' in text)
    data = make(2, [(3, size, size)] * 2, num_items=[5, 3], num_classes=2, **rotated)
    if config.model.type == 'FastRCNN':  # reads its proposals from a file
        for sample in data['data_samples']:
            sample.proposals = sample.gt_instances
    return data


def text_batch(size: int) -> dict:
    from mmengine.structures import InstanceData
    from mmocr.structures import TextDetDataSample

    samples, random = [], np.random.RandomState(0)
    for _ in range(2):
        corner, side = random.rand(4, 2) * size / 2, random.rand(4, 2) * size / 4 + size / 8
        objects = InstanceData()
        objects.polygons = [
            np.float32([x, y, x + w, y, x + w, y + h, x, y + h]) for (x, y), (w, h) in zip(corner, side, strict=True)
        ]
        objects.bboxes = torch.tensor(np.concatenate([corner, corner + side], 1), dtype=torch.float32)
        objects.labels, objects.ignored = torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.bool)
        meta = dict(img_shape=(size, size), ori_shape=(size, size), scale_factor=(1, 1))
        samples.append(TextDetDataSample(metainfo=meta, gt_instances=objects))
    return dict(
        inputs=[torch.randint(0, 255, (3, size, size), dtype=torch.uint8) for _ in range(2)], data_samples=samples
    )


class Calls:
    """The names of the operators that were called."""

    def __init__(self):
        self.module, self.names = import_module('mmcv._ext'), set()

    def __getattr__(self, name):
        operator = getattr(self.module, name)

        def counted(*args, **kwargs):
            self.names.add(name)
            return operator(*args, **kwargs)

        return counted


def run(package: str, path: Path, size: int) -> tuple[str, str, set[str]]:
    """Returns what happened in training and in prediction, and the operators."""
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope

    init_default_scope(package)
    config = Config.fromfile(path)
    without_weights(config)
    calls = Calls()
    for name, module in sys.modules.items():
        if name.startswith('mmcv.ops.') and hasattr(module, 'ext_module'):
            module.ext_module = calls
    torch.manual_seed(0)
    results = []
    try:
        model = MODELS.build(config.model)
        data = batch(package, config, size)
    except Exception as error:
        return f'not built: {line(error)}', '', calls.names
    for step in (train, predict):
        try:
            step(model, data)
            results.append('ok')
        except Exception as error:
            results.append(line(error))
    return *results, calls.names


def line(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = ' '.join(str(error).split())[:90]
    return f'{type(error).__name__}: {text} ({Path(place.filename).name}:{place.lineno})'


def train(model, data) -> None:
    model.train()
    for part in model.modules():
        if getattr(part, 'epoch', 0) is None:  # a hook of the runner sets it
            part.epoch = 0
    losses = model.forward(**model.data_preprocessor(data, True), mode='loss')
    total, _ = model.parse_losses(losses)
    total.backward()
    assert total.isfinite(), f'loss {total.item()}'
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters()), 'no gradient'


def predict(model, data) -> None:
    model.eval()
    data = {key: value[:1] for key, value in data.items()}  # masked convolution takes one image
    with torch.no_grad():
        model.forward(**model.data_preprocessor(data, False), mode='predict')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('package', choices=PACKAGES)
    parser.add_argument('--only', nargs='+', help='families: names of folders')
    parser.add_argument('--size', type=int, default=256, help='of the images, in pixels')
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    torch.set_num_threads(1)
    collections.Sequence = collections.abc.Sequence  # mmrotate 1.0.0rc1 takes it from here, as before Python 3.10
    import_module(f'{args.package}.models')
    print('| family | config | training step | prediction | operators | s |\n|---|---|---|---|---|---|')
    for name, path in first_configs(args.package).items():
        if args.only is None or name in args.only:
            start = time.perf_counter()
            trained, predicted, names = run(args.package, path, args.size)
            seconds = time.perf_counter() - start
            print(
                f'| {name} | {path.stem} | {trained} | {predicted} | {", ".join(sorted(names))} | {seconds:.0f} |',
                flush=True,
            )


if __name__ == '__main__':
    main()
