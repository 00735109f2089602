"""The rule about sizes of images with which a detector cannot work: its network is run with a blank image."""

import math
from bisect import bisect_left
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from tokennorm.config.tree import innermost_datasets
from tokennorm.engine.rules.built import Built, Lines
from tokennorm.findings import Rule

SAMPLES = 8  # of a split, whose smallest batch counts: a pipeline draws sizes
PERIOD, LARGE = 128, 256  # sides from LARGE on are tried as the shortest side there with the same remainder
GROWTHS, STEP = (128, 256, 512), 32  # pixels by which sides are enlarged, with the same remainders; of sides that work

UNFIT_SIZE = Rule('unfit-size', 'error', 'the detector cannot work with images of this size', about='config',
    why='The first step would fail, or the first validation. Feature maps that are halved and doubled again must meet, '
        'poolings and windows need some positions, and a DETR may choose its queries among the tokens of the image, of '
        'which a small one has too few.',
    do='Set what works, sizes in the pipelines, or fewer model.num_queries of a DETR')  # fmt: skip


@UNFIT_SIZE.judged(on='samples')
def of_samples(built: Built) -> Lines:
    for split in ('train', 'val'):
        dataset = built.data.get(split)
        if dataset is None or not _is_read(dataset) or not _can_run(built.model):
            continue
        if (shape := _smallest_batch(built.model, dataset, split == 'train')) is not None:
            yield from _findings(built, split, shape)


@UNFIT_SIZE.judged(on='built')
def of_config(built: Built) -> Lines:
    """Where the data is not on this machine: a square of the short side that test images are resized to."""
    from tokennorm.plan.image_size import short_side

    has_data = built.loops or any(map(_is_read, built.data.values()))
    if not has_data and _can_run(built.model) and (side := short_side(built.cfg)):
        side = _multiple(side, getattr(built.model.data_preprocessor, 'pad_size_divisor', 1))
        yield from _findings(built, 'test', (side, side))


def _is_read(dataset: Any) -> bool:
    return all(getattr(part, '_fully_initialized', True) for part in innermost_datasets(dataset))


def _can_run(model: Any) -> bool:
    """Returns whether this process has a whole detector: a sharded one would wait for other ranks."""
    from mmdet.models.detectors.base import BaseDetector

    sharded = any('FullySharded' in type(part).__name__ for part in model.modules())
    return isinstance(model, BaseDetector) and not sharded


def _smallest_batch(model: Any, dataset: Any, training: bool) -> tuple[int, int] | None:
    """Returns height and width of the smallest of a few batches of one image, with its padding.

    None is for other samples, such as those of teacher and student.
    """
    import torch
    from mmengine.logging import MessageHub

    from tokennorm.engine.resume.random_state import preserved_generators

    hub, pads, shapes = MessageHub.get_current_instance(), deepcopy(model.data_preprocessor), []
    if hub.get_info('iter') is None:  # which augmentation of batches reads; training sets it
        hub.update_info('iter', 0)
    with preserved_generators():
        for i in sorted({i * len(dataset) // SAMPLES for i in range(SAMPLES)}):
            sample = dataset[i]
            if not isinstance(sample, dict) or not isinstance(sample.get('inputs'), torch.Tensor):
                return None
            batch = dict(inputs=[sample['inputs']], data_samples=[sample['data_samples']])
            shapes.append(tuple(pads(batch, training)['inputs'].shape[-2:]))
    return min(shapes, key=math.prod)


def _findings(built: Built, split: str, shape: tuple[int, int]) -> Iterator[tuple[str, str]]:
    model, (height, width) = built.model, shape
    if _runs(model, [side if side < LARGE else LARGE + side % PERIOD for side in shape]) is None:
        return
    if (error := _runs(model, shape)) is not None and (way_out := _what_works(built, shape)):
        reason = f'{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}'
        yield split, f'{type(model).__name__} cannot work with {height} x {width} pixels ({reason}); {way_out}'


def _what_works(built: Built, shape: tuple[int, int]) -> str:
    """Returns the number that works; '' if no size does, as the error is another one then."""
    from tokennorm.plan.image_size import short_side

    model, short = built.model, min(shape)
    growths = (growth for growth in GROWTHS if _runs(model, [side + growth for side in shape]) is None)
    if (growth := next(growths, 0)) == 0:
        for divisor in (2, 4, 8, 16, 32, 64, 128):
            if _runs(model, [_multiple(side, divisor) for side in shape]) is None:
                return f'multiples of {divisor} work: model.data_preprocessor.pad_size_divisor={divisor}'
        return ''
    sides = range(_multiple(short + 1, STEP), short + 2 * growth, STEP)
    enlarged = [[_multiple(round(side * n / short), STEP) for side in shape] for n in sides]
    at = bisect_left(enlarged, True, key=lambda sizes: _runs(model, sizes) is None)
    if at == len(sides):
        return ''
    option = short_side(built.cfg)
    text = f'a short side of {sides[at]} works'
    return text + (f': --image-size {_multiple(round(sides[at] * option / short), STEP)}' if option else '')


def _runs(model: Any, shape: Any) -> Exception | None:
    """Returns the error of the network for a blank image, or None."""
    import torch
    from mmdet.structures import DetDataSample

    from tokennorm.engine.resume.random_state import preserved_generators
    from tokennorm.images.padding import note_image_sizes

    shape, was_training = tuple(shape), model.training
    sizes = dict.fromkeys(('img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape'), shape)
    sample = DetDataSample(metainfo=dict(**sizes, scale_factor=(1.0, 1.0), img_id=0))
    model.eval()
    try:
        with torch.no_grad(), preserved_generators():
            image = torch.zeros(1, 3, *shape, device=next(model.parameters()).device)
            model(note_image_sizes(image, [shape]), [sample], mode='tensor')
    except Exception as error:  # of a detector, whatever it raises
        return error
    finally:
        model.train(was_training)
    return None


def _multiple(side: int, divisor: int) -> int:
    return -(-side // divisor) * divisor
