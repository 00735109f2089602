"""Builds one config per family of mmdet, mmrotate or mmocr's text detectors, without weights, and runs two steps.

    python families.py mmrotate [--only s2anet redet] [--size 256] [--seconds 900]

A step of training (losses and backward pass) and a prediction, on random images and boxes, each family in a process
of its own. Prints per family what ran and which operators of `mmcv.ops` it called. Needs the package, with its
configs, and any mmcv; transformers for the families that read text, which get a small random BERT.

Less than in the configs: sizes of images, and the numbers of CAPS.
"""

import argparse
import collections
import collections.abc
import contextlib
import logging
import multiprocessing
import os
import re
import resource
import sys
import tempfile
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
CAPS = dict(num_queries=100, num_proposals=100, num_points=1024, nms_pre=200, max_per_img=100, num_cp=0)  # at most
MEMORY = 20 << 30  # bytes of address space
SMALL, LARGE = '(r18|tiny|nano|_s|-t)(?=[-_])', '(r101|x101|_l|_x|-l|swin-[bl])(?=[-_])'


def configs(package: str) -> dict[str, list[Path]]:
    """Returns the configs per folder. First are those that train, have the folder's name, are small."""

    def rank(path: Path) -> tuple:
        folder, name = (re.sub('[-_]', '', text) for text in (path.parent.name, path.stem))
        size = bool(re.search(LARGE, path.stem)) - bool(re.search(SMALL, path.stem))
        return 'pretrain' in name, folder not in name, size, len(name), name

    root = Path(find_spec(package).origin).parent / '.mim' / 'configs' / PACKAGES[package]
    files = {folder.name: sorted(folder.glob('*.py'), key=rank) for folder in sorted(root.iterdir())}
    files = {name: [path for path in paths if not path.stem.endswith('_tta')] for name, paths in files.items()}
    return {name: paths for name, paths in files.items() if paths and name not in NO_DETECTORS}


def reduce(config) -> None:
    """Removes initializations from files and lowers numbers, in place."""
    if isinstance(config, dict):
        for key in ('init_cfg', 'pretrained', 'load_from', 'init_args', 'teacher_ckpt'):
            value = config.get(key)
            if isinstance(value, str) or (isinstance(value, dict) and 'checkpoint' in value):
                config[key] = None
        if config.get('pretrained') is True:
            config['pretrained'] = False
        for key, most in CAPS.items():
            if isinstance(config.get(key), int):
                config[key] = min(config[key], most)
        if config.get('type') == 'SyncBN':  # the runner converts it where there is no GPU
            config['type'] = 'BN'
        if 'pos_fraction' in config:
            config['num'] = min(config['num'], 64)
        for value in config.values():
            reduce(value)
    elif isinstance(config, (list, tuple)):
        for value in config:
            reduce(value)


def batches(package: str, config, size: int) -> tuple[dict, dict]:
    """Returns two images, or frames, with objects for training, and one for prediction."""
    if package == 'mmocr':
        data = text_batch(size)
        return data, first(data)
    make, text, model = import_module(f'{package}.testing'), str(config), config.model
    options = dict(num_items=[5, 3], num_classes=2)
    if package == 'mmrotate':
        options.update(use_box_type=True, use_qbox='ConvertBoxType' not in str(config.train_dataloader))
    else:
        stride = re.search(r"SegRescale.{0,40}?scale_factor': ([0-9.]+)", text)
        options.update(
            with_mask='mask' in text.lower(), with_semantic='semantic' in text or 'panoptic' in text,
            sem_seg_output_strides=round(1 / float(stride[1])) if stride else 1,
            texts=[('cat', 'dog')] * 2 if 'language_model' in model else None)  # fmt: skip
    data = make.demo_mm_inputs(2, [(3, size, size)] * 2, **options)
    for sample in data['data_samples']:
        sample.gt_instances.labels.zero_()  # a class that every dataset has
        sample.set_metainfo(dict(homography_matrix=np.eye(3, dtype=np.float32), batch_input_shape=(size, size)))
        if model.type == 'FastRCNN':  # reads its proposals from a file
            sample.proposals = sample.gt_instances
    one = first(data)
    if 'Semi' in model.type or 'SoftTeacher' in model.type:
        data = {key: dict(sup=value, unsup_teacher=value, unsup_student=value) for key, value in data.items()}
    elif model.type == 'BaseReID':
        data = one = reid_batch()
    elif model.get('data_preprocessor', {}).get('type') == 'TrackDataPreprocessor':
        one = make.demo_track_inputs(1, 2, [0], [(3, size, size)], num_items=[3], with_mask='mask' in text.lower())
        if not model.data_preprocessor.get('use_det_processor'):
            data = one
    return data, one


def first(data: dict) -> dict:
    return {key: value[:1] for key, value in data.items()}  # masked convolution takes one image


def reid_batch() -> dict:
    from mmdet.structures import ReIDDataSample

    sample = ReIDDataSample().set_gt_label(np.array([0, 0, 1, 1]))
    return dict(inputs=[torch.randint(0, 255, (4, 3, 256, 128), dtype=torch.uint8)], data_samples=[sample])


def with_small_bert(config, folder: str) -> None:
    """Writes a random BERT of two layers and two words into a folder, and names it in the config."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', '.', '?', 'cat', 'dog']
    Path(folder, 'vocab.txt').write_text('\n'.join(words), encoding='utf-8')
    BertTokenizerFast(f'{folder}/vocab.txt').save_pretrained(folder)
    BertModel(BertConfig(len(words), num_hidden_layers=2)).save_pretrained(folder)
    config.model.language_model.name = folder
    if 'lang_model_name' in config.model.bbox_head:
        config.model.bbox_head.lang_model_name = folder


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
    from mmengine.logging import MessageHub
    from mmengine.registry import MODELS, init_default_scope

    init_default_scope(package)
    config = Config.fromfile(path)
    reduce(config._cfg_dict)
    calls = Calls()
    for name, module in sys.modules.items():
        if name.startswith('mmcv.ops.') and hasattr(module, 'ext_module'):
            module.ext_module = calls
    torch.manual_seed(0)
    for name in ('iter', 'epoch'):  # the runner's
        MessageHub.get_current_instance().update_info(name, 0)
    results, size = [], max(size, 300 if 'SSD' in str(config.model) else 0)
    os.chdir(next(parent for parent in path.parents if parent.name == '.mim'))  # from where configs name teachers
    try:
        with tempfile.TemporaryDirectory() as folder:
            if 'language_model' in config.model:
                with_small_bert(config, folder)
            model = MODELS.build(config.model)
        model.init_weights()
        data = batches(package, config, size)
    except Exception as error:
        return f'not built: {line(error)}', '', calls.names
    for step, part in zip((train, predict), data, strict=True):
        try:
            step(model, part)
            results.append('ok')
        except Exception as error:
            results.append(line(error))
    return *results, calls.names


def row(name: str, package: str, paths: list[Path], size: int) -> None:
    """Prints the row of a family: of the first of three configs that can be built."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)  # MMSyncBN
    start = time.perf_counter()
    for path in paths[:3]:
        trained, predicted, names = run(package, path, size)
        if not trained.startswith('not built'):
            break
    seconds = time.perf_counter() - start
    print(
        f'| {name} | {path.stem} | {trained} | {predicted} | {", ".join(sorted(names))} | {seconds:.0f} |', flush=True
    )


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
    with torch.no_grad():
        model.forward(**model.data_preprocessor(data, False), mode='predict')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('package', choices=PACKAGES)
    parser.add_argument('--only', nargs='+', help='families: names of folders')
    parser.add_argument('--size', type=int, default=256, help='of the images, in pixels')
    parser.add_argument('--seconds', type=int, default=900, help='limit per family')
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    torch.set_num_threads(1)
    logging.disable()
    collections.Sequence = collections.abc.Sequence  # mmrotate 1.0.0rc1 takes it from here, as before Python 3.10
    with contextlib.suppress(ImportError):  # mmpretrain 1.2.0 does not fit transformers 4.56
        import_module('mmpretrain.utils.dependency').WITH_MULTIMODAL = False
    import_module(f'{args.package}.models')
    print('| family | config | training step | prediction | operators | s |\n|---|---|---|---|---|---|', flush=True)
    for name, paths in configs(args.package).items():
        if args.only is None or name in args.only:
            process = multiprocessing.get_context('fork').Process(
                target=row, args=(name, args.package, paths, args.size)
            )
            process.start()
            process.join(args.seconds)
            if process.exitcode != 0:
                ended = f'ended with {process.exitcode}' if process.exitcode else f'not ended after {args.seconds} s'
                process.kill()
                process.join()
                print(f'| {name} | {paths[0].stem} | {ended} |  |  |  |', flush=True)


if __name__ == '__main__':
    main()
