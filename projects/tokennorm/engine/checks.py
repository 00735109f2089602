"""Compares a config with its annotation files and the parts of a model with each other, and tries the first samples."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

import torch
from mmdet.datasets import CocoDataset
from mmdet.registry import DATASETS
from mmengine.fileio import list_from_file
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tokennorm.checkpoints.reading import Checkpoint
from tokennorm.config.image_size import short_side
from tokennorm.config.tree import evaluators, heads, innermost_datasets, is_classifier, walk
from tokennorm.datasets.coco.folder import read_coco_file
from tokennorm.engine.resume.random_state import preserved_generators
from tokennorm.messages import UserError, did_you_mean, shorten, user_errors
from tokennorm.registry import arguments_of, type_name

MOST_TRIED = 16  # samples: a crop may lose the objects of one
_RULES = {  # of mmengine for groups of parameters
    *('custom_keys', 'bypass_duplicate', 'dcn_offset_lr_mult', 'bias_lr_mult'),
    *('bias_decay_mult', 'norm_decay_mult', 'flat_decay_mult', 'dwconv_decay_mult'),
}
_MORE_RULES = {  # by the optimizer wrapper's constructor
    'None': (),
    'DefaultOptimWrapperConstructor': (),
    'tokennorm.LayerDecayOptimWrapperConstructor': ('decay_rate', 'backbone_lr_mult'),  # others have this name, too
}
IMAGENET_PIXELS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and standard deviation of RGB, from 0 to 1
MOST_LOST = 0.1  # a score threshold that costs hardly any AP
SAME_PIXELS = 3  # difference, of 255, of a mean or standard deviation that does not matter


def check_config_data(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> None:
    """Checks the annotation files that a config names, and that the heads count the classes of the datasets."""
    for split in splits:
        loader = cfg.get(f'{split}_dataloader')
        for dataset in innermost_datasets(loader['dataset']) if loader else ():
            if dataset.get('backend_args') or '://' in f'{dataset.get("data_root")}{dataset.get("ann_file")}':
                continue  # at a URL, or in one of mmengine's file backends
            if not dataset.get('ann_file'):
                root = Path(dataset.get('data_root') or '.')
                if not root.is_dir():
                    raise UserError(f'{split}_dataloader: folder {root} not found; put the data there')
                continue
            check_annotations(dataset, split)
            # A panoptic dataset has thing_classes, which are what its heads count.
            classes = _things(dataset) or _classes(dataset) or ()
            counted = 'thing_classes' if _things(dataset) else 'classes'
            for name, head in heads(cfg['model']) if classes else ():
                if head['num_classes'] != len(classes):
                    raise UserError(
                        f'{name}.num_classes={head["num_classes"]}, but metainfo.{counted} of {split}_dataloader has '
                        f'{len(classes)}: set it to {len(classes)}'
                    )
            for name, part in walk(cfg['model'], 'model') if classes else ():  # of MaskFormer and Mask2Former
                if part.get('num_things_classes', len(classes)) != len(classes):
                    raise UserError(
                        f'{name}.num_things_classes={part["num_things_classes"]}, but metainfo.{counted} of '
                        f'{split}_dataloader has {len(classes)}: set it to {len(classes)}'
                    )
        _check_evaluators(cfg, split)


def check_annotations(dataset: Mapping[str, Any], split: str) -> None:
    """Checks that an annotation file exists, and a COCO file's classes and their order."""
    role, path = f'{split}_dataloader', Path(dataset.get('data_root') or '', dataset['ann_file'])
    kind = DATASETS.module_dict.get(type_name(dataset))
    has_coco_format = kind is not None and issubclass(kind, CocoDataset)
    in_order = has_coco_format and kind.load_data_list is CocoDataset.load_data_list
    if not path.is_file():
        hint = 'set data_root' + (', or name your folder with --data' if has_coco_format else ', or put the data there')
        raise UserError(f'{role}: annotation file {path} not found; {hint}')
    if not has_coco_format:
        return
    classes = _classes(dataset)
    try:
        names = [str(category['name']) for category in read_coco_file(path, with_annotations=False)['categories']]
    except (ValueError, KeyError) as error:
        raise UserError(f'{role}: {path} is not a COCO annotation file ({type(error).__name__}: {error})') from error
    found = [name for name in names if name in (classes or names)]
    if classes is not None and (found != list(classes) if in_order else len(found) < len(classes)):
        absent = [name for name in classes if name not in names]
        raise UserError(
            f'{role}: metainfo.classes has {shorten(absent or classes, 100)}, but the categories in {path} are '
            f'{shorten(names, 100)}: give both the same names in the same order, in which mmdet numbers them'
        )


def _check_evaluators(cfg: Mapping[str, Any], split: str) -> None:
    """Checks that the evaluators of a split compare with annotations of the images that its loader reads."""
    datasets = list(innermost_datasets((cfg.get(f'{split}_dataloader') or {}).get('dataset') or {}))
    read = [Path(one.get('data_root') or '', one['ann_file']) for one in datasets if one.get('ann_file')]
    if not read or any(path.suffix != '.json' or not path.is_file() for path in read):
        return

    @cache
    def listed(path: Path) -> list[tuple[str, str]]:
        images = read_coco_file(path, with_annotations=False)['images']
        return [(str(one.get('id')), Path(str(one.get('file_name'))).name) for one in images]

    for evaluator in evaluators(cfg, split):
        path = Path(evaluator.get('ann_file') or '')
        own = path.is_file() and path.suffix == '.json'
        if len(read) == 1 and (not own or path.samefile(read[0])):
            continue
        with user_errors(ValueError, where=f'{split}_evaluator: '):
            images = sorted(image for one in read for image in listed(one))
            differ = own and sorted(listed(path)) != images
        if differ:
            raise UserError(
                f'{split}_evaluator.ann_file={path} has other images than {shorten(list(map(str, read)))}, which '
                f'{split}_dataloader reads: set both to the same file'
            )
        same = [first for (first, _), (second, _) in pairwise(images) if first == second]
        if same and re.search('Coco|LVIS', type_name(evaluator)):
            raise UserError(
                f'{split}_dataloader: several images have the id {same[0]}, by which AP tells them apart: give the '
                f'images of {shorten(list(map(str, read)))} different ids'
            )


def _things(dataset: Mapping[str, Any]) -> Sequence[str] | None:
    meta = dataset.get('metainfo') or {}
    own = getattr(DATASETS.module_dict.get(type_name(dataset)), 'METAINFO', {}).get('thing_classes')
    return meta.get('thing_classes', None if 'classes' in meta else own)


def _classes(dataset: Mapping[str, Any]) -> Sequence[str] | None:
    """The classes of a dataset's config or of a file that it names, or those of a COCO dataset's class, or None."""
    kind = DATASETS.module_dict.get(type_name(dataset))
    own = kind.METAINFO.get('classes') if kind is not None and issubclass(kind, CocoDataset) else None
    classes = (dataset.get('metainfo') or {}).get('classes', own)
    if not isinstance(classes, str):
        return classes
    if not Path(classes).is_file():
        raise UserError(f'metainfo.classes={classes!r} is neither a file nor a tuple of names, such as ({classes!r},)')
    return list_from_file(classes)


def check_classes(trained: Sequence[str], classes: Sequence[str], checkpoint: str) -> None:
    """Checks that the data has the classes that a checkpoint was trained with, in the same order."""
    if list(trained) == list(classes):
        return
    reason = 'in another order' if sorted(trained) == sorted(classes) else 'not the same'
    raise UserError(
        f'the classes of {checkpoint} and of the data are {reason}: {len(trained)} ({", ".join(trained)}) '
        f'and {len(classes)} ({", ".join(classes)}). Use the data that it was trained for, with --data or the config '
        'in its work directory, with its categories in that order'
    )


def check_backbone(backbone: nn.Module, init_cfg: Mapping[str, Any], checkpoint: Checkpoint) -> None:
    """Checks that a checkpoint has most tensors of a third-party backbone: mmengine leaves out what does not fit."""
    if hasattr(backbone, 'layouts'):  # TokenNorm's backbones check every tensor
        return
    own, prefix = backbone.state_dict(), init_cfg.get('prefix', '')
    given = {key.removeprefix(prefix): value for key, value in checkpoint.state_dict.items() if key.startswith(prefix)}
    fitting = sum(key in given and given[key].shape == value.shape for key, value in own.items())
    if fitting < 0.5 * len(own):
        raise UserError(
            f'--init: {checkpoint.source} has {fitting} of the {len(own)} tensors of {type(backbone).__name__}; its '
            f'names are such as {shorten(list(checkpoint.state_dict), 3)}. Use weights of this backbone'
        )


def check_classes_of_data(model: Mapping[str, Any], datasets: Mapping[str, Any]) -> None:
    """Checks that built datasets number their classes equally, have a color for each, and fit a classifier's head."""
    numbers: dict[str, int] = {}
    for split, dataset in datasets.items():
        metas = getattr(dataset, 'metainfo', None) or {}
        for meta in metas if isinstance(metas, list | tuple) else [metas]:
            classes, palette = meta.get('classes') or (), meta.get('palette')
            if isinstance(classes, str) or not all(isinstance(name, str) for name in classes):
                continue
            moved = [name for i, name in enumerate(classes) if numbers.setdefault(name, i) != i]
            if moved and 'language_model' not in model:  # which finds classes by their names
                raise UserError(
                    f'the data of {split} numbers the class {moved[0]} otherwise than the data before it: give all '
                    f'datasets the same classes in the same order. Here: {shorten(classes, 100)}'
                )
            if isinstance(palette, list | tuple) and 0 < len(palette) < len(classes):
                raise UserError(f'metainfo.palette of {split} has {len(palette)} colors for {len(classes)} classes')
            of_head = (model.get('head') or {}).get('num_classes') if is_classifier(dict(model=model)) else None
            if isinstance(of_head, int) and of_head < len(classes):
                raise UserError(
                    f'model.head.num_classes={of_head}, but the data of {split} has {len(classes)} classes: '
                    f'{shorten(classes)}'
                )


def check_switches(cfg: Mapping[str, Any]) -> None:
    """Checks that hooks that change the training pipeline find it: they look into the outermost dataset."""
    outer = type_name((cfg.get('train_dataloader') or {}).get('dataset') or {})
    for hook in cfg.get('custom_hooks') or ():
        wrong = dict(
            PipelineSwitchHook=outer in ('RepeatDataset', 'ConcatDataset', 'ClassBalancedDataset'),
            YOLOXModeSwitchHook=outer != 'MultiImageMixDataset',
        )
        if isinstance(hook, Mapping) and wrong.get(type_name(hook)):
            raise UserError(
                f'custom_hooks: {type_name(hook)} would change nothing in train_dataloader.dataset, a {outer}: put the '
                'wrapper into its dataset, or leave out the hook'
            )


def check_paramwise(cfg: Mapping[str, Any]) -> None:
    """Checks the rules for groups of parameters: mmengine reads those that it knows, and no others."""
    wrapper = cfg.get('optim_wrapper') or {}
    kind, rules = str(wrapper.get('constructor')), wrapper.get('paramwise_cfg') or {}
    of_package = str(((cfg.get('model') or {}).get('backbone') or {}).get('type')).startswith('tokennorm.')
    if of_package and kind.removeprefix('mmdet.') == 'LearningRateDecayOptimizerConstructor':
        raise UserError(
            f'optim_wrapper.constructor={kind} knows ConvNeXt and BEiT only: use '
            'tokennorm.LayerDecayOptimWrapperConstructor, with paramwise_cfg=dict(decay_rate=...)'
        )
    if kind not in _MORE_RULES or 'optimizer' not in wrapper:
        return
    places = [('', rules, _RULES.union(_MORE_RULES[kind]))]
    # Others than PyTorch's read keys of their own, such as lars_exclude of LARS.
    if optimizer := getattr(torch.optim, type_name(wrapper['optimizer']), None):
        own = {'lr_mult', 'decay_mult', *arguments_of(dict(type=optimizer), None)} - {'self', 'params'}
        places += [(f'.custom_keys.{name}', rule, own) for name, rule in (rules.get('custom_keys') or {}).items()]
    for place, given, known in places:
        if unknown := [key for key in given if key not in known]:
            raise UserError(
                f'optim_wrapper.paramwise_cfg{place}: {unknown[0]} is not one of {", ".join(sorted(known))}'
                f'{did_you_mean(unknown[0], known)}. A rule of another optim_wrapper.constructor needs that constructor'
            )


def describe_idle_keys(cfg: Mapping[str, Any], model: nn.Module) -> list[str]:
    """Returns a line if entries of `custom_keys` are in no parameter's name, as those for another backbone or norm."""
    wrapper = cfg.get('optim_wrapper') or {}
    names = [name for name, _ in model.named_parameters()]
    keys = (wrapper.get('paramwise_cfg') or {}).get('custom_keys') or {}
    if str(wrapper.get('constructor')) not in _MORE_RULES:  # others may read the keys in another way
        return []
    idle = [f"'{key}'" for key in keys if not any(key in name for name in names)]
    rules = 'optim_wrapper.paramwise_cfg.custom_keys'
    return [f'{rules}: no parameter has {shorten(idle)} in its name, so these rules do nothing'] * bool(idle)


def describe_other_pixels(cfg: Mapping[str, Any]) -> list[str]:
    """Returns a line if the weights of the backbone are for other pixels than the data preprocessor gives.

    Half of timm's ViTs have a mean and standard deviation of 0.5. Published weights of PVT, PVTv2, Swin and DeiT have
    those of ImageNet, as most of mmdet's configs. YOLOX and RTMDet have BGR pixels.
    """
    backbone = cfg['model'].get('backbone') or {}
    init_cfg = backbone.get('init_cfg')
    weights = init_cfg.get('checkpoint') if isinstance(init_cfg, Mapping) else None  # a list of other backbones
    if not str(backbone.get('type')).startswith('tokennorm.') or not weights or cfg.get('load_from'):
        return []
    model, known = backbone.get('model_name'), None
    if type_name(backbone) in ('PVT', 'PVTv2', 'Swin') or (model is None and 'deit' in Path(weights).name):
        known = IMAGENET_PIXELS
    for name in (str(weights), str(model)) if known is None else ():
        with suppress(RuntimeError, ImportError):  # a tag that the model does not have, such as the suffix of a file
            from timm import get_pretrained_cfg

            found = get_pretrained_cfg(name.rpartition('timm/')[2])
            known = known or (found and (found.mean, found.std))
    if known is None:
        return []
    given = cfg['model'].get('data_preprocessor') or cfg.get('data_preprocessor') or {}
    mean, std = ([round(255 * value, 2) for value in values] for values in known)
    values = [*(given.get('mean') or [0] * 3), *(given.get('std') or [1] * 3)]
    wanted = mean + std
    if len(values) != len(wanted):  # as with one channel
        return []
    near = all(abs(a - b) <= SAME_PIXELS for a, b in zip(values, wanted, strict=True))
    if near and (given.get('bgr_to_rgb') or given.get('to_rgb')):
        return []
    return [
        f'published weights of {model or type_name(backbone)} are for RGB pixels of mean={mean} and '
        f'std={std}, and data_preprocessor gives others: set its mean, std and order of channels, unless '
        f'{weights} has other weights'
    ]


def describe_lost_scores(cfg: Mapping[str, Any]) -> list[str]:
    """Returns a line if the detector drops scores that AP counts, as configs for deployment do."""
    metrics = {type_name(one) for split in ('val', 'test') for one in evaluators(cfg, split)}
    if not metrics & {'CocoMetric', 'LVISMetric', 'VOCMetric'}:
        return []
    test_cfg = cfg['model'].get('test_cfg') or {}
    parts = [(name, part) for name, part in walk(test_cfg, 'model.test_cfg') if 'rcnn' not in part]
    found = {f'{name}.score_thr': part.get('score_thr') for name, part in parts}
    high = [f'{name}={value}' for name, value in found.items() if isinstance(value, float) and value > MOST_LOST]
    return [f'detections below {", ".join(high)} are dropped, which makes AP too low'] * bool(high)


@torch.no_grad()
def check_feature_maps(model: nn.Module, cfg: Mapping[str, Any]) -> None:
    """Checks by the backbone's `feature_info` that neck, anchors and the head of a classifier fit its feature maps.

    The anchors or points of a detector's head must have the strides of the neck's feature maps, by a forward pass.
    """
    info = getattr(getattr(model, 'backbone', None), 'feature_info', None)
    if info is None:
        return
    channels, name = [entry['num_chs'] for entry in info], type(model.backbone).__name__
    neck_cfg, head_cfg = cfg.get('neck'), cfg.get('head') or {}
    first = neck_cfg[0] if isinstance(neck_cfg, list | tuple) and neck_cfg else neck_cfg or {}
    if type_name(first) == 'GlobalAveragePooling':
        first = {}
    part, given = ('neck', first.get('in_channels')) if first else ('head', head_cfg.get('in_channels'))
    given = list(given) if isinstance(given, tuple) else given
    expected = channels[-1] if isinstance(given, int) else channels[:: -1 if type_name(first) == 'YOLOV3Neck' else 1]
    if given not in (None, expected):
        raise UserError(
            f'model.{part}: in_channels={given}, but the feature maps of {name} have {channels} channels: set it to '
            f'{expected}'
        )
    neck = getattr(model, 'neck', None)
    head = next((name for name in ('rpn_head', 'bbox_head') if hasattr(model, name)), None)
    strides = getattr(getattr(getattr(model, head or '', None), 'prior_generator', None), 'strides', None)
    strides = [stride[0] for stride in strides or ()]
    if neck is None or any(stride & (stride - 1) for stride in strides) or not strides:  # SSD300 does not pad
        return
    side = 4 * math.lcm(*strides, *(entry['reduction'] for entry in info))
    was_training, device = neck.training, next(model.parameters()).device
    neck.eval()  # keeps the statistics of batch norms
    with FakeTensorMode(allow_non_fake_inputs=True):  # shapes only
        sides = [side // entry['reduction'] for entry in info]
        maps = [torch.zeros(1, c, s, s, device=device) for c, s in zip(channels, sides, strict=True)]
        found = strides
        with suppress(RuntimeError):  # of operators that need values, such as the deformable ones of DyHead
            found = [side // out.shape[-1] for out in neck(tuple(maps))]
    neck.train(was_training)
    if found != strides:
        raise UserError(
            f'model.{head}: its anchors have the strides {strides}, but the feature maps of the neck have {found}: '
            'change out_indices of the backbone, start_level and num_outs of the neck, or the anchors. A '
            'backbone with one feature map needs a patch size of 16 and the neck tokennorm.SimpleFeaturePyramid'
        )


def check_queries(cfg: Mapping[str, Any]) -> None:
    """Limits the detections of a DETR to its queries, and checks that the smallest images have as many positions.

    A two-stage DETR picks its queries at positions. mmdet fails in both cases, after an epoch or before the first step.
    """
    model, size = cfg['model'], short_side(cfg)
    queries, levels = model.get('num_queries', 0), model.get('num_feature_levels', 4)
    head, test_cfg = model.get('bbox_head') or {}, model.get('test_cfg') or {}
    classes = head.get('num_classes', 1) if (head.get('loss_cls') or {}).get('use_sigmoid') else 1
    if queries and test_cfg.get('max_per_img', 0) > queries * classes:
        test_cfg['max_per_img'] = queries * classes
    masks = model.get('panoptic_head') or {}  # of MaskFormer and Mask2Former
    most = masks.get('num_things_classes', 0) + masks.get('num_stuff_classes', 0)
    if 0 < (most := most * masks.get('num_queries', 100)) < test_cfg.get('max_per_image', 0):
        test_cfg['max_per_image'] = most
    if size is None or not (queries and model.get('as_two_stage')):
        return
    steps = [step for _, step in walk(cfg.get('train_dataloader')) if 'Resize' in type_name(step)]
    scales = [scale for step in steps for scale in step.get('scales') or [step.get('scale')]]
    least = min([size, *(min(scale) for scale in scales if isinstance(scale, list | tuple))])

    def positions(side: float) -> int:  # of square images, on maps of strides up to 64
        return sum(math.ceil(side / 2**i) ** 2 for i in range(7 - levels, 7))

    if positions(least) < queries:
        enough = next(side for side in range(size, 2**14) if positions(side * least / size) >= queries)
        raise UserError(
            f'model.num_queries={queries}, but images of {least} x {least} pixels, the smallest of the training '
            f'pipeline, have {positions(least)} positions to choose from: use --image-size {-(-enough // 32) * 32} or '
            f'more, or --cfg-options model.num_queries={positions(least)}'
        )


def check_training_samples(dataset: Any) -> None:
    """Checks that images have objects, and that pipelines keep them: one of the first images must have some left.

    An augmentation whose sizes do not fit each other, such as a border wider than the mosaic that it cuts, otherwise
    trains without an object and without a word. The random generators stay as they are.
    """
    parts = list(innermost_datasets(dataset))
    is_whole = sum(map(len, parts)) <= len(dataset) and all(0 < len(part) <= 1000 for part in parts)
    known = is_whole and all(hasattr(one, 'get_data_info') and 'instances' in one.get_data_info(0) for one in parts)
    if known and not any(True for part in parts for _ in _annotated(part)):
        names = shorten((getattr(parts[0], 'metainfo', None) or {}).get('classes') or ())
        raise UserError(f'no training image has an object of the classes {names}: are they those of the annotations?')
    for one in getattr(dataset, 'datasets', [dataset]):  # of several files
        _check_pipeline(one)


def _annotated(part: Any) -> Iterator[int]:
    for index in range(min(len(part), 1000)):
        if any(not one.get('ignore_flag') for one in part.get_data_info(index).get('instances') or ()):
            yield index


def _check_pipeline(dataset: Any) -> None:
    inner = next(iter(innermost_datasets(dataset)))
    if not hasattr(inner, 'get_data_info') or not hasattr(inner, 'pipeline'):
        return
    found = [index for index in islice(_annotated(inner), MOST_TRIED) if index < len(dataset)]
    tried = list(islice(cycle(found), MOST_TRIED))  # a few images several times: a crop may lose the objects
    with preserved_generators():
        refetches, inner.max_refetch = getattr(inner, 'max_refetch', 0), 0  # other images, where transforms give none
        has_objects = any(_keeps_objects(dataset, index) for index in tried)
        inner.max_refetch = refetches
    if tried and not has_objects:
        steps = []
        while dataset is not None:
            pipeline = getattr(dataset, 'pipeline', ())
            steps += [type(step).__name__ for step in getattr(pipeline, 'transforms', pipeline)]
            dataset = getattr(dataset, 'dataset', None)
        raise UserError(
            f'the training pipeline leaves no object in {len(tried)} samples of {len(found)} images with objects, so '
            f'that nothing would be learned: its sizes do not fit each other or the images ({", ".join(steps)}). '
            'Set them with --cfg-options, or choose another --image-size'
        )


def _keeps_objects(dataset: Any, index: int) -> bool:
    """Whether a sample has objects, or is of a kind that has none."""
    try:
        objects = getattr(dataset[index].get('data_samples'), 'gt_instances', None)
    except Exception as error:  # mmengine raises no other class where a transform leaves nothing
        if 'Cannot find valid image' in str(error) or 'always return' in str(error):
            return False
        raise
    return objects is None or len(objects) > 0
