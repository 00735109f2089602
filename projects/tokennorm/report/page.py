"""Writes the report: `report.html` for people, `report.json` and the detections for other programs."""

import base64
import hashlib
import json
import os
import platform
import re
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import torch
from markupsafe import Markup
from mmengine.config import Config

from tokennorm.base.environment import FORKS, check_mmcv_ops, distributions_of, version_of
from tokennorm.base.files import as_json, write_atomically
from tokennorm.base.messages import counted
from tokennorm.datasets.splits import SPLIT_WORDS
from tokennorm.evaluation.analysis import TIDE, Evaluation, evaluate, select_categories
from tokennorm.evaluation.results import CocoResults
from tokennorm.evaluation.suspects import as_rows
from tokennorm.plan.anchor_fit import anchor_fit
from tokennorm.report import figures
from tokennorm.report.gallery import Gallery
from tokennorm.report.scalars import Curve, read_scalars
from tokennorm.version import __version__

SUMMARY = {
    'mAP': 'AP',
    'mAP_50': 'AP50',
    'mAP_75': 'AP75',
    'mAP_s': 'AP small',
    'mAP_m': 'AP medium',
    'mAP_l': 'AP large',
}
RELOAD = 30  # seconds, of a page about a run that has not ended
TRAIN_BATCHES = 'train_batches.jpg'  # of `TrainBatchesHook`
_CHOSEN = 'best F1 of the class at IoU 0.5'
LEARNING_RATE = 'Learning rate'
IOU_TYPES = {'bbox': 'box', 'segm': 'mask'}
_REFRESH = f'<meta http-equiv="refresh" content="{RELOAD}">'


@dataclass(frozen=True)
class Running:
    """A training run that has not ended."""

    at: str  # such as 'epoch 3 of 12'
    interval: float  # seconds between two validations


def write_report(
    path: str | Path,
    ann_file: str | Path,
    detections: Mapping[str, CocoResults],
    image_dir: str | Path | None = None,
    category_ids: Sequence[int] | None = None,
    work_dir: str | Path | None = None,
    cfg: Config | None = None,
    checkpoint: str | None = None,
    max_detections: int = 100,
    training: str = '',
    image_ids: Sequence[int] | None = None,
    running: Running | None = None,
) -> dict[str, Any]:
    """Writes a report on detections, by 'bbox' or 'segm', of the images of a COCO annotation file.

    Next to the page `NAME.html` there will be `NAME.json`, its numbers, and `NAME.bbox.json` or `NAME.segm.json`, the
    detections as COCO results, which `tokennorm compare` reads, and `thresholds.json`, the recommended thresholds.

    Args:
        image_dir: Folder of the images; None leaves the galleries out.
        category_ids: Evaluated categories; None takes those of the file.
        work_dir: Work directory of the training run, for its scalars; None leaves the curves out.
        checkpoint: Where the weights come from.
        max_detections: Detections per image and class that AP counts.
        training: A line about the training run, for the top of the page.
        image_ids: Images that were read; None is all of the file.
        running: State of a training run that has not ended. Only the page is written then, without the analysis of
            errors and the images with errors, and it reloads itself.
    """
    path = Path(path)
    content = json.loads(Path(ann_file).read_bytes())
    ground_truth = select_categories(content, category_ids, image_ids)
    is_whole = len(ground_truth['images']) == len(content['images'])
    results = {kind: evaluate(ground_truth, found, kind, max_detections) for kind, found in detections.items()}
    main = list(results.values())[-1]  # masks, where there are masks
    scalars = {} if work_dir is None else read_scalars(work_dir)
    train_cfg = (cfg or {}).get('train_cfg') or {}
    by_epoch = 'IterBased' not in str(train_cfg.get('type', '')) and bool(train_cfg.get('by_epoch', True))
    numbers = dict(
        title=data_name(content, ann_file, image_dir),
        config_name=Path(cfg.filename).stem if cfg is not None and cfg.filename else None,
        training=training,
        command=shlex.join([Path(sys.argv[0]).name.split()[0], *sys.argv[1:]]),
        checkpoint=checkpoint,
        work_dir=None if work_dir is None else str(work_dir),
        data=dict(
            path=str(Path(ann_file).resolve()),
            source=content.get('tokennorm', {}).get('source', str(ann_file)),
            fingerprint=fingerprint(ann_file),
            content='' if running else content_fingerprint(dict(content, images=ground_truth['images'])),
            images=len(ground_truth['images']),
            objects=sum(not a.get('iscrowd') for a in ground_truth['annotations']),
            classes=len(ground_truth['categories']),
        ),
        category_ids=[category['id'] for category in ground_truth['categories']],
        image_ids=None if is_whole else [image['id'] for image in ground_truth['images']],
        max_detections=max_detections,
        config=None if cfg is None else cfg.pretty_text,
        by_epoch=by_epoch,
        versions=versions(),
        results={kind: as_numbers(result) for kind, result in results.items()},
        suspects=as_rows(main.suspects, ground_truth),
    )
    gallery = None if image_dir is None else Gallery(ground_truth, main, image_dir)
    page = render(
        'report.html.j2',
        numbers=numbers,
        results=results,
        main=main,
        tide={IOU_TYPES[kind]: result.tide for kind, result in results.items()},
        fit=None if cfg is None else anchor_fit(cfg, ground_truth),
        over_the_run=curve_figures({'': scalars}, 'epoch' if by_epoch else 'iteration'),
        best=gallery.best_images() if gallery else [],
        worst=gallery.worst_images() if gallery and running is None else [],
        labels=gallery.suspects() if gallery and running is None else [],
        train_batches=None if work_dir is None else as_data_uri(Path(work_dir) / TRAIN_BATCHES),
        running=running,
        figures=figures,
    )
    if running is None:
        for kind, found in detections.items():
            found.write(path.with_suffix(f'.{kind}.json'))
        write_atomically(path.with_suffix('.json'), as_json(numbers, indent=1).encode())
        thresholds = dict(classes=main.class_thresholds(), checkpoint=checkpoint, chosen=_CHOSEN)
        write_atomically(path.with_name('thresholds.json'), as_json(thresholds, indent=1).encode())
    write_page(path, page)
    return numbers


def recommended_thresholds(
    ann_file: str | Path,
    detections: Mapping[str, CocoResults],
    category_ids: Sequence[int] | None,
    max_detections: int,
    image_ids: Sequence[int] | None,
) -> dict[str, float]:
    """Returns what `write_report`, with these arguments, recommends as the score threshold of each class."""
    ground_truth = select_categories(json.loads(Path(ann_file).read_bytes()), category_ids, image_ids)
    kind = list(detections)[-1]
    return evaluate(ground_truth, detections[kind], kind, max_detections).class_thresholds()


def is_running(path: str | Path) -> bool:
    """Returns whether a page says that its training run has not ended."""
    return Path(path).is_file() and _REFRESH in Path(path).read_text(encoding='utf-8')[:2000]


def end_running(path: str | Path) -> None:
    """Has a page about a running training say that it ended early. Other pages stay as they are."""
    if is_running(path):
        text = Path(path).read_text(encoding='utf-8')
        banner = '<p class="warning">Training ended early. This is the state after its last validation.</p>'
        text = re.sub(r'<p class="running".*?</p>', banner, text.replace(_REFRESH, ''), count=1, flags=re.DOTALL)
        write_page(path, text)


def write_page(path: str | Path, page: str) -> None:
    """Writes a page, in which a file name may be any bytes."""
    write_atomically(path, page.encode('utf-8', 'backslashreplace'))


def as_data_uri(path: Path) -> str | None:
    """Returns a JPEG file as a data URI; None without the file."""
    return f'data:image/jpeg;base64,{base64.b64encode(path.read_bytes()).decode()}' if path.is_file() else None


def fingerprint(path: str | Path) -> str:
    """Returns the first digits of a file's SHA-256; '' without the file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12] if Path(path).is_file() else ''


def content_fingerprint(content: Mapping[str, Any]) -> str:
    """Returns a digest of the images and objects of a COCO file. A copy, or the same in other words, has the same."""
    return hashlib.sha256('\n'.join(key for key, *_ in keys_of_images(content)).encode()).hexdigest()[:12]


def keys_of_images(content: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Returns the images of a COCO file in an order that does not depend on their ids and folders.

    Of each image: its file name without folders, its size and its objects as text, its whole file name, and its id. An
    object is its class, its box, whether it is a crowd, and its segmentation.
    """
    names = {one['id']: one['name'] for one in content['categories']}
    objects: dict[Any, list[str]] = defaultdict(list)
    for one in content.get('annotations', ()):
        values = one.get('bbox'), bool(one.get('iscrowd')), one.get('segmentation') or None
        objects[one['image_id']].append(json.dumps([names.get(one['category_id']), *map(_as_floats, values)]))
    keys = []
    for image in content['images']:
        path = str(image.get('file_name'))
        size = _as_floats([image.get('width'), image.get('height')])
        keys.append((json.dumps([re.split(r'[\\/]', path)[-1], size, sorted(objects[image['id']])]), path, image['id']))
    return sorted(keys, key=lambda key: key[:2])


def _as_floats(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_as_floats, value)]
    if isinstance(value, dict):
        return {key: _as_floats(value[key]) for key in sorted(value)}
    return float(value) if type(value) is int else value


def data_name(content: Mapping[str, Any], ann_file: str | Path, image_dir: str | Path | None) -> str:
    """Returns the name of the folder that annotations and images share, or of its parent if a split has the name."""
    noted = content.get('tokennorm', {})
    source = Path(noted.get('source', ann_file))  # a sentence where labels are not COCO's
    images = Path(os.path.abspath(noted.get('images') or image_dir or source.parent))  # links keep their names
    labels = Path(os.path.abspath(source.parent)) if source.is_file() else images
    shared = Path(os.path.commonpath([labels, images]))
    folder = shared if shared.name else labels
    while folder.name.lower() in (*SPLIT_WORDS, 'annotations', 'images', 'labels'):
        folder = folder.parent
    return folder.name or str(folder)


def render(template: str, **variables: Any) -> str:
    """Returns a page from one of the package's templates."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('tokennorm.report'),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(points=format_points, counted=counted)
    environment.globals.update(
        TIDE=TIDE,
        SUMMARY=SUMMARY,
        LEARNING_RATE=LEARNING_RATE,
        IOU_TYPES=IOU_TYPES,
        format_difference=format_difference,
        tokennorm_version=__version__,
        now=f'{datetime.now():%Y-%m-%d %H:%M}',
        seconds=int(time.time()),
        REFRESH=Markup(_REFRESH),
    )
    return environment.get_template(template).render(**variables)


def format_points(value: float | None) -> str:
    """Returns a fraction in points, 0.4567 -> '45.7'; a dash for None and for COCO's -1."""
    return '–' if value is None or value < 0 else f'{100 * value:.1f}'  # noqa: RUF001


def format_difference(first: float, second: float) -> str:
    """Returns the difference of two fractions as they are printed, in points: 0.0824 and 0.0936 -> '+1.2'."""
    return f'{round(100 * second, 1) - round(100 * first, 1):+.1f}'


def as_numbers(result: Evaluation) -> dict[str, Any]:
    """Returns what `report.json` has of an evaluation."""
    return dict(
        summary=result.summary,
        threshold=result.threshold,
        best=None if result.best is None else asdict(result.best),
        classes=[asdict(entry) for entry in result.classes],
        confusion=result.confusion.tolist(),
        tide=result.tide,
        error_counts=result.error_counts,
    )


def curve_figures(runs: Mapping[str, Mapping[str, Curve]], step: str) -> dict[str, str]:
    """Returns figures by caption, of the scalars of runs by their labels: AP, loss, learning rate, lambda."""
    precisions = {
        f'{run} {IOU_TYPES[iou_type]} {label}'.strip(): {at: 100 * value for at, value in curve.items()}
        for run, scalars in runs.items()
        for iou_type in IOU_TYPES
        for suffix, label in (('mAP', 'AP'), ('mAP_50', 'AP50'))[: 2 if len(runs) == 1 else 1]
        for name, curve in scalars.items()
        if name.endswith(f'{iou_type}_{suffix}')
    }
    drawn = {}
    if precisions:
        drawn['AP on the validation set'] = figures.draw_curves(precisions, step, 'AP', marker='.')
    # `lr` is the rate of the first group of parameters, `base_lr` that of the optimizer, where they differ.
    for names, caption in ((['loss'], 'Training loss'), (['base_lr', 'lr'], LEARNING_RATE)):
        curves = {run: next(filter(None, map(scalars.get, names)), None) for run, scalars in runs.items()}
        curves = {run: curve for run, curve in curves.items() if curve}
        if curves:
            drawn[caption] = figures.draw_curves(curves, 'iteration', caption.lower())
    lambdas = {
        name: curve for scalars in runs.values() for name, curve in scalars.items() if name.startswith('lambda/')
    }
    if lambdas and len(runs) == 1:
        drawn['Lambda of the DTN layers, light: first layers'] = figures.draw_lambdas(lambdas)
    return drawn


def versions() -> dict[str, str]:
    """Returns the versions of Python, of TokenNorm and of the packages it builds on, and the device."""
    found = {'Python': platform.python_version(), 'tokennorm': __version__}
    packages = [name for package in ('torch', *FORKS, 'hotcoco', 'numpy') for name in distributions_of(package)]
    found |= {name: version_of(name) for name in packages}
    found["mmcv's operators"] = check_mmcv_ops()
    found['device'] = torch.cuda.get_device_name() if torch.cuda.is_available() else f'CPU ({platform.machine()})'
    return found
