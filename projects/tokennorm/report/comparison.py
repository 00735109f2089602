"""Writes one page about two training runs: what the second changes in AP, per class, in errors, curves and config."""

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokennorm.base.messages import UserError
from tokennorm.evaluation.analysis import select_categories
from tokennorm.evaluation.results import CocoResults
from tokennorm.report import figures
from tokennorm.report.page import (
    IOU_TYPES,
    content_fingerprint,
    curve_figures,
    fingerprint,
    keys_of_images,
    render,
    write_page,
)
from tokennorm.report.scalars import Curve, read_scalars


@dataclass(frozen=True)
class Run:
    """A training run with a report."""

    label: str
    folder: Path
    numbers: dict[str, Any]
    scalars: dict[str, Curve]

    @property
    def weights(self) -> str:
        """The file name of the checkpoint whose AP the report has."""
        return Path(self.numbers.get('checkpoint') or 'not known').name


Interval = tuple[float, float] | tuple[None, None]  # of AP of the second run minus AP of the first one


def read_run(path: str | Path) -> Run:
    """Reads a work directory with a report."""
    path = Path(path)
    if not (path / 'report.json').is_file():
        raise UserError(
            f'{path} has no report.json; expected a work directory after training, or after `tokennorm test --report`'
        )
    try:
        numbers = json.loads((path / 'report.json').read_text(encoding='utf-8'))
        _ = numbers['results'], numbers['data']['fingerprint'], numbers['by_epoch'], numbers['max_detections']
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f'{path / "report.json"} is not the report of this version ({type(error).__name__}: {error}); write it '
            f'again by `tokennorm test {path} --report`, and compare {path / "test"}'
        ) from None
    scalars = read_scalars(path) or read_scalars(path.resolve().parent)  # a report of testing is one folder deeper
    return Run(path.resolve().name, path, numbers, scalars)


def compare(first: Run, second: Run, path: str | Path, resamples: int = 200) -> dict[str, Interval]:
    """Writes the page, and returns the 95% bootstrap interval over the images by 'bbox' or 'segm', if estimated."""
    shared = [iou_type for iou_type in IOU_TYPES if all(iou_type in run.numbers['results'] for run in (first, second))]
    is_same = same_data(first, second)
    can_resample = is_same and None not in _ground_truths(first, second)
    intervals: dict[str, Interval] = {
        iou_type: interval(first, second, iou_type, resamples) if can_resample else (None, None) for iou_type in shared
    }
    runs = dict(zip(names_of(first, second), (first, second), strict=True))
    steps = sorted({'epoch' if run.numbers['by_epoch'] else 'iteration' for run in runs.values()})
    page = render(
        'compare.html.j2',
        runs=runs,
        intervals=intervals,
        same_data=is_same,
        resamples=resamples,
        classes={
            iou_type: [
                dict(name=one['name'], objects=one['objects'], first=one['ap'], second=other['ap'])
                for one in first.numbers['results'][iou_type]['classes']
                for other in second.numbers['results'][iou_type]['classes']
                if one['name'] == other['name']
            ]
            for iou_type in shared
        },
        tide={
            iou_type: figures.draw_tide({k: run.numbers['results'][iou_type]['tide'] for k, run in runs.items()})
            for iou_type in shared
        },
        curves=curve_figures({label: run.scalars for label, run in runs.items()}, ' or '.join(steps)),
        config_changes=config_changes(first, second),
    )
    write_page(path, page)
    return intervals


def names_of(first: Run, second: Run) -> list[str]:
    """Returns the names of the work directories, with as much of their paths as tells them apart."""
    if first.label != second.label:
        return [first.label, second.label]
    paths = [str(first.folder), str(second.folder)]
    return paths if paths[0] != paths[1] else [f'{path} ({i})' for i, path in enumerate(paths, 1)]


def interval(first: Run, second: Run, iou_type: str, resamples: int) -> tuple[float, float]:
    """Returns the 95% bootstrap interval of the difference in AP."""
    import hotcoco

    content, other = _ground_truths(first, second)
    ground_truth = select_categories(content, first.numbers['category_ids'])
    limits = [1, 10, max(run.numbers['max_detections'] for run in (first, second))]
    detections = [CocoResults.read(run.folder / f'report.{iou_type}.json') for run in (first, second)]
    if other is not content:
        detections[1] = _with_ids_of(content, other, detections[1])
    evaluations = [found.evaluate(ground_truth, iou_type, max_dets=limits) for found in detections]
    result = hotcoco.compare(*evaluations, n_bootstrap=resamples, seed=0, confidence=0.95)
    return float(result['ci']['AP']['lower']), float(result['ci']['AP']['upper'])


def same_data(first: Run, second: Run) -> bool:
    """Returns whether two runs were evaluated on the same images with the same objects, whatever file has them."""
    if _file(first) == _file(second):
        return True
    contents = [
        run.numbers['data'].get('content') or (content_fingerprint(truth) if (truth := _ground_truth(run)) else '')
        for run in (first, second)
    ]
    return contents[0] == contents[1] != ''


def _file(run: Run) -> tuple[str, Any]:
    return run.numbers['data']['fingerprint'], run.numbers.get('image_ids')


def _ground_truths(first: Run, second: Run) -> list[Any]:
    """The annotations of both runs, twice the same object where both had the same file; None where they are lost."""
    truths = [_ground_truth(first), _ground_truth(second)]
    return [truths[0] or truths[1]] * 2 if _file(first) == _file(second) else truths


def _ground_truth(run: Run) -> dict[str, Any] | None:
    """The annotations of the images of a run; None if the file is not found, or its content has changed since.

    Reports of version 1.2 and earlier have no fingerprint of the content, only that of the file.
    """
    data = run.numbers['data']
    try:
        content = json.loads(Path(data['path']).read_bytes())
        if (chosen := run.numbers.get('image_ids')) is not None:
            content = dict(content, images=[image for image in content['images'] if image['id'] in set(chosen)])
        is_same = fingerprint(data['path']) == data['fingerprint'] or content_fingerprint(content) == data['content']
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return content if is_same else None


def _with_ids_of(content: dict[str, Any], other: dict[str, Any], detections: CocoResults) -> CocoResults:
    """Detections on the images of another file with the ids that the same images and classes have in this one."""
    pairs = zip(keys_of_images(other), keys_of_images(content), strict=True)
    images = {theirs: own for (*_, theirs), (*_, own) in pairs}
    ids = {one['name']: one['id'] for one in content['categories']}
    categories = {one['id']: ids[one['name']] for one in other['categories'] if one['name'] in ids}
    known = detections.select(np.isin(detections.table[:, 6], list(categories)))
    table = known.table.copy()
    table[:, 0] = [images[i] for i in table[:, 0]]
    table[:, 6] = [categories[i] for i in table[:, 6]]
    return CocoResults(table, known.masks)


def config_changes(first: Run, second: Run) -> list[str]:
    """Returns the lines of a unified diff of the two configs, without its file names."""
    texts = [(run.numbers['config'] or '').splitlines() for run in (first, second)]
    return list(difflib.unified_diff(*texts, lineterm='', n=2))[2:]
