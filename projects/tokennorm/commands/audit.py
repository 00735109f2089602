"""`tokennorm.audit`: writes the annotations of a split that are probably wrong, for programs that correct them."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import unwrap
from pathlib import Path
from typing import Any

from tokennorm.base.files import make_output_dir, write_atomically
from tokennorm.base.messages import UserError, counted, in_python
from tokennorm.base.ranks import print_once
from tokennorm.commands.checks import check_at_least_one, check_choice, codes_of, path_of
from tokennorm.commands.importing import import_openmmlab
from tokennorm.commands.opening import name_detector
from tokennorm.commands.result import Result
from tokennorm.commands.test import SPLITS, test
from tokennorm.config.detector_files import Named
from tokennorm.findings import Findings, judging
from tokennorm.plan.options import check_data


@dataclass(frozen=True)
class AuditResult(Result):
    """Result of `tokennorm.audit`."""

    suspects: Sequence[Mapping[str, Any]]  #: all of them as in report.json, the most suspicious first
    images: int  #: number of images that were written
    out: Path  #: folder of the files

    def as_dict(self) -> dict[str, Any]:
        """Returns the number of suspects of each kind, of images, and the folder."""
        return dict(suspects=Counter(one['kind'] for one in self.suspects), images=self.images, out=str(self.out))


@in_python
def audit(
    detector: Any,
    checkpoint: str | Path | None = None,
    *,
    data: str | Path,
    split: str = 'train',
    folds: int | None = None,
    most: int = 200,
    out: str | Path | None = None,
    allow: Sequence[str] = (),
    strict: bool = False,
    cfg_options: Mapping[str, Any] | None = None,
) -> AuditResult:
    """Writes the annotations of a split that are probably wrong, for programs that correct them.

    `tokennorm.evaluation.suspects` defines their kinds and their score. Next to a report there are `suspects.json`, in
    COCO format with attributes of suspects, `cvat_labels.json`, the labels of a CVAT project for it,
    `label_studio.json` with `label_studio.xml`, `suspects.jpg`, and the images in `images`.

    Args:
        detector: As `tokennorm.test` takes it.
        checkpoint: Checkpoint of a config.
        data: Folder, or data.yaml of YOLO.
        split: 'train', 'val' or 'test'.
        folds: Train this number of detectors by the config of the run, each without one part of train, which it then
            judges. A detector believes the annotations that it was trained on. Repeated, the call continues.
        most: Number of images to write, those with the most suspicious annotations.
        out: Folder of the files, and of the runs of `folds`; None is suspects.
        allow: Codes of rules to overrule.
        strict: Warnings are errors.
        cfg_options: Entries of the config to set.

    Raises:
        UserError: for whatever ends `tokennorm audit` with an error.
    """
    data, out, allow = path_of('--data', data), path_of('--out', out or 'suspects'), codes_of(allow)
    check_data(data)
    check_choice('--split', split, SPLITS)
    check_at_least_one('--most', most)
    if folds is not None:
        check_at_least_one('--folds', folds)
        if folds == 1 or split != 'train':
            raise UserError(f'--folds {folds} with --split {split}: expected 2 or more parts, of train')
    named = name_detector(detector, checkpoint, cfg_options)
    _claim(out, data)
    if folds is None:
        options: dict[str, Any] = dict(allow=allow, strict=strict, cfg_options=cfg_options)
        folder = unwrap(test)(detector, checkpoint, data=data, split=split, out=out, report=True, **options).work_dir
    else:
        folder = _judge_in_folds(named, data, folds, out, allow, strict)
    from tokennorm.datasets.discovery import find_splits
    from tokennorm.report.label_tools import write_suspects

    with judging(Findings(allow, strict)):
        found = find_splits(data, (split,))[split]
    report = json.loads((folder / 'report.json').read_text('utf-8'))
    suspects, ap = report['suspects'], max(one['summary']['mAP'] for one in report['results'].values())
    images = write_suspects(out, found, suspects, most)
    counts = Counter(one['kind'] for one in suspects)
    kinds = ', '.join(f'{kind} {count}' for kind, count in counts.most_common())
    written = f' ({kinds}); {counted(images, "image")} written, the worst first' if suspects else ''
    lines = [
        f'{out}: {counted(len(suspects), "suspect")}{written}',
        f'They come from detections with AP {100 * ap:.1f} here: the lower it is, the less the list says.',
    ]
    if folds is None and split == 'train':
        lines.append('A detector partly believes annotations that it was trained on: --folds 3 judges without that.')
    return AuditResult(suspects, images, out, lines=lines)


def _claim(out: Path, data: Path) -> None:
    """Creates the folder of the files; raises `UserError` for one of the data, or with files of anything else."""
    from tokennorm.datasets.image_files import is_data, is_image
    from tokennorm.datasets.splits import SPLIT_WORDS

    place = os.path.relpath(out.resolve(), (data if data.is_dir() else data.parent).resolve())
    parts = Path(place).parts
    if not parts or (parts[0] != '..' and any(part.lower() in SPLIT_WORDS for part in parts)):
        raise UserError(f'--out {out} is the folder of the data, or named as one of its splits; choose another one')
    make_output_dir(out)
    mark, files = out / 'suspects.json', [path for path in out.iterdir() if is_data(path.name)]
    if (files and mark not in files) or any(map(is_image, {*files} - {out / 'suspects.jpg'})):
        raise UserError(f'--out {out} has files that no earlier audit wrote; choose an empty folder')
    if mark not in files:  # so that a repeated call may continue
        write_atomically(mark, json.dumps(dict(images=[], annotations=[], categories=[])).encode())


def _judge_in_folds(named: Named, data: Path, folds: int, out: Path, allow: Sequence[str], strict: bool) -> Path:
    """Trains the detectors that are not finished, and returns the folder of the report on what they find."""
    import_openmmlab()
    from tokennorm.checkpoints.locating import newest_checkpoint
    from tokennorm.commands.train import train_with
    from tokennorm.config.open_config import read_config
    from tokennorm.datasets.discovery import find_splits
    from tokennorm.datasets.splitting import write_folds
    from tokennorm.evaluation.results import CocoResults
    from tokennorm.plan.options import TrainOptions
    from tokennorm.report.page import write_report

    if named.config == named.checkpoint:
        raise UserError(f'--folds trains by the config of a run: name its work directory instead of {named.checkpoint}')
    with judging(Findings(allow, strict)):
        whole = find_splits(data, ('train',))['train']
    write_folds(whole, folds, out / 'folds')
    print_once(_length_of(named.checkpoint, folds, len(whole.content['images'])))
    cfg = read_config(named.config)
    init = None  # as the run began
    if not cfg.get('load_from'):
        init = 'imagenet' if (cfg.model.get('backbone', {}).get('init_cfg') or {}).get('checkpoint') else 'none'
    elif os.path.exists(cfg.load_from):
        print_once(f'The run began from {cfg.load_from}: was that trained on these annotations, too?')
    reports = [out / 'folds' / str(number) / 'run' / 'report.json' for number in range(1, folds + 1)]
    for number, report in enumerate(reports, 1):
        if report.is_file():
            continue
        print_once(f'Detector {number} of {folds}, in {report.parent}')
        resume = newest_checkpoint(report.parent) is not None
        options: dict[str, Any] = dict(
            config=named.config, data=report.parents[1] / 'data', out=report.parent, init=init
        )
        entries = {**named.cfg_options, **({} if resume else dict(resume=False))}  # of the config of a resumed run
        train_with(TrainOptions(**options, resume=resume, allow=allow, strict=strict, cfg_options=entries))
        if not report.is_file():
            raise UserError(f'{report.parent} has no report: its config does not validate with a tokennorm.CocoMetric')
    numbers = [json.loads(report.read_text('utf-8')) for report in reports]
    found = {
        kind: CocoResults.joined([CocoResults.read(report.with_suffix(f'.{kind}.json')) for report in reports])
        for kind in numbers[0]['results']
    }
    write_report(
        out / 'report.html',
        whole.ann_file,
        found,
        whole.image_dir,
        numbers[0]['category_ids'],
        max_detections=max(one['max_detections'] for one in numbers),
        training=f'{folds} detectors, each of which judges the part of train that it was not trained on',
    )
    return out


def _length_of(checkpoint: str, folds: int, images: int) -> str:
    """A line about the time that training takes."""
    folder = Path(checkpoint) if os.path.isdir(checkpoint) else Path(checkpoint).parent
    report, time = folder / 'report.json', ''
    if report.is_file():
        time = json.loads(report.read_text('utf-8')).get('training') or ''
    text = f'{folds} detectors are trained, each without one of {folds} parts of {counted(images, "image")}'
    times = '' if folds == 2 else f'{folds - 1} times '
    return f'{text}: about {times}as long as the run took. {time}'.strip()
