"""A folder for the Hugging Face Hub: the weights of a training run, its config and a model card."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from tokennorm.checkpoints import CheckpointError
from tokennorm.checkpoints.reading import common_meta
from tokennorm.checkpoints.writing import to_bytes, write_new
from tokennorm.report.scalars import read_scalars

_METRICS = {'coco/bbox_mAP': 'box AP', 'coco/segm_mAP': 'mask AP', 'accuracy/top1': 'top-1 accuracy'}


def write_hub_folder(
    folder: Path, published: Mapping[str, Any], source: Path, license_id: str = 'unknown', dataset: str | None = None
) -> list[Path]:
    """Writes `model.safetensors`, `config.py` and `README.md`, the model card, into a folder."""
    config = published['meta'].get('cfg')
    if not config:
        raise CheckpointError(f'{source} has no config in its metadata; publish a checkpoint of a training run')
    card = model_card(folder.resolve().name, published, _metrics(published['meta'], source.parent), license_id, dataset)
    contents = {
        folder / 'model.safetensors': to_bytes(dict(published), '.safetensors'),
        folder / 'config.py': config.encode(),
        folder / 'README.md': card.encode(),
    }
    if there := [path for path in contents if path.exists()]:
        raise FileExistsError(f'{there[0]} already exists; remove it or name another folder')
    for path, content in contents.items():
        write_new(path, content)
    return list(contents)


def model_card(
    name: str, published: Mapping[str, Any], metrics: Mapping[str, float], license_id: str, dataset: str | None
) -> str:
    """The card in Markdown, with the Hub's fields as YAML at its top."""
    meta = published['meta']
    classes = [str(one) for one in common_meta(meta.get('dataset_meta')).get('classes') or ()]
    masks = any(key.startswith('roi_head.mask_head.') for key in published['state_dict'])
    boxes = any(key.startswith(('bbox_head.', 'roi_head.')) for key in published['state_dict'])
    facts = {
        'Training data': dataset,
        'Metrics on the validation data': ', '.join(f'{key} {value:.4g}' for key, value in metrics.items()),
        'License of the weights': None if license_id == 'unknown' else license_id,
        'Classes': classes and f'{len(classes)}: {", ".join(classes)}',
        'Epochs': meta.get('epoch'),
        'Parameters and buffers': f'{sum(value.numel() for value in published["state_dict"].values()):,}',
        'TokenNorm': meta.get('tokennorm_version'),
    }
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('tokennorm.report'), trim_blocks=True, keep_trailing_newline=True
    )
    return environment.get_template('model_card.md.j2').render(
        name=name,
        license=license_id,
        task='image-segmentation' if masks else 'object-detection' if boxes else 'image-classification',
        dataset=dataset,
        metrics=metrics,
        facts={key: ' '.join(str(value or 'not stated').replace('|', '/').split()) for key, value in facts.items()},
    )


def _metrics(meta: Mapping[str, Any], work_dir: Path) -> dict[str, float]:
    """The metrics that a training run logged for the checkpoint's epoch or iteration."""
    curves = read_scalars(work_dir)
    steps = [meta[key] for key in ('epoch', 'iter') if key in meta]
    found = {}
    for key, name in _METRICS.items():
        value = next((curves[key][step] for step in steps if step in curves.get(key, {})), None)
        if value is not None:
            found[name] = value
    return found
