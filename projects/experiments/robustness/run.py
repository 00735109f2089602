"""Evaluates a classifier or detector under ImageNet-C's corruptions.

Prints errors of a classifier, and with --baseline mCE; mPC and rPC of a detector. Each corruption and severity is
written to the file of results when it is done, and not computed again.
"""

import argparse
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
from mmengine.config import Config

from experiments.robustness import ALEXNET, CORRUPTIONS, SEVERITIES
from experiments.robustness.class_folders import restrict_answers, use_trained_classes
from experiments.robustness.corruptions import CorruptionError, corruption_sheet
from experiments.robustness.evaluation import ACCURACY, CorruptedTest, check_coco_metric, choose_images
from experiments.robustness.mce import Baseline, alexnet_baseline, classifier_report, detector_report, file_baseline
from experiments.robustness.results import CLEAN, Cell, Results, cell_name, digest
from tokennorm.base.files import check_output_file
from tokennorm.base.messages import UserError, user_errors
from tokennorm.checkpoints import Checkpoint, check_fit, read_state_dict
from tokennorm.cli.arguments import add_options_argument
from tokennorm.cli.command import Parser, command
from tokennorm.config.open_config import read_config
from tokennorm.config.tree import is_classifier
from tokennorm.engine.hooks.data_errors import DataError
from tokennorm.engine.rules import Built, verify
from tokennorm.engine.runner import build_runner
from tokennorm.plan.data import use_data_folder
from tokennorm.plan.recipe import open_plan


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument('config', help='config file, or the name of a config')
    parser.add_argument('checkpoint', help='checkpoint, or the work directory of a training run')
    parser.add_argument(
        '--data',
        metavar='DIR',
        help='data to use instead of the data of the config: as for `tokennorm check`, or for classifiers a folder per '
        'class',
    )
    parser.add_argument(
        '--classes',
        type=Path,
        metavar='PATH',
        help='names of some classes of a classifier, as folders or lines of a file; other classes are excluded from '
        'images and predictions',
    )
    parser.add_argument(
        '--corruptions',
        nargs='+',
        choices=['none', *CORRUPTIONS],
        metavar='NAME',
        help='names of corruptions, or none; default: all 15',
    )
    parser.add_argument(
        '--severities',
        nargs='+',
        type=int,
        choices=SEVERITIES,
        default=list(SEVERITIES),
        metavar='N',
        help='default: 1 to 5',
    )
    parser.add_argument('--images', type=int, metavar='N', help='number of images, evenly spaced; default: all')
    parser.add_argument(
        '--baseline',
        metavar=f'{ALEXNET}|FILE',
        help="baseline errors for mCE: AlexNet's on ImageNet-C, or the errors in another model's file of results",
    )
    parser.add_argument(
        '--published',
        type=Path,
        metavar='DIR',
        help="ImageNet-C's files instead of corruptions on the fly: DIR/CORRUPTION/SEVERITY/CLASS/image",
    )
    parser.add_argument('--out', type=Path, help='file of results, .json; default: WORK_DIR/robustness.json')
    parser.add_argument('--show-dir', type=Path, help='draw the corruptions of the first image into this folder')
    parser.add_argument(
        '--workers', type=int, metavar='N', help='processes that read images; default: as in the config'
    )
    parser.add_argument('--work-dir', help='directory of logs; default: as in the config, or work_dirs/NAME')
    add_options_argument(parser)
    parser.set_defaults(launcher='none')
    args = parser.parse_args(argv)
    if args.images is not None and args.images < 1:
        parser.error(f'--images {args.images} must be at least 1')
    if args.workers is not None and args.workers < 0:
        parser.error(f'--workers {args.workers} must be at least 0')
    if args.out is not None and args.out.suffix != '.json':
        parser.error(f'--out {args.out}: the file must end in .json')
    if args.corruptions is not None and 'none' in args.corruptions and len(args.corruptions) > 1:
        parser.error('--corruptions: none cannot be combined with others')
    if args.corruptions == ['none'] and args.baseline:
        parser.error('--baseline needs corruptions')
    if args.published is not None and not args.published.is_dir():
        parser.error(f'--published {args.published}: no such folder')
    args.corruptions = [name for name in CORRUPTIONS if args.corruptions is None or name in args.corruptions]
    args.severities = sorted(set(args.severities))
    return args


@command
def main(argv: list[str]) -> None:
    evaluate(_parse_args(argv))


def evaluate(args: argparse.Namespace) -> None:
    """Evaluates what the arguments ask for, and prints the report."""
    cells = [(corruption, severity) for corruption in args.corruptions for severity in args.severities]
    with user_errors(ImportError, RuntimeError, OSError, ValueError):
        if args.out is not None:
            check_output_file(args.out)
        test, results, baseline = prepare(args, cells)
        if args.show_dir is not None and cells:
            draw(test, args)
    print(f'{results.settings["images"]} images, results in {results.path}', flush=True)
    try:
        run(test, results, [CLEAN, *cells])
    except (CorruptionError, DataError) as error:  # of a worker, with its traceback in the text
        raise UserError(str(error).strip().splitlines()[-1]) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f'Interrupted. The same command resumes from {results.path}') from None
    results.summary, text = report(results, cells, baseline)
    results.write()
    print(f'\n{text}')


def prepare(args: argparse.Namespace, cells: list[Cell]) -> tuple[CorruptedTest, Results, Baseline | None]:
    """Returns the test to run, the results so far, and the baseline."""
    checkpoint = Checkpoint.read(args.checkpoint)
    args.checkpoint = checkpoint.source
    trained = list(checkpoint.dataset_meta.get('classes') or ()) or None
    cfg, subset = load_test_config(args, trained)
    out = args.out or Path(cfg.work_dir, 'robustness.json')
    cfg.work_dir = str(Path(cfg.work_dir, 'robustness'))  # the training run keeps its config
    test, weights = open_test(cfg, args.checkpoint, trained, subset, args.published)
    classes = len(test.dataset.metainfo['classes'])
    settings = dict(
        config=args.config,
        checkpoint=args.checkpoint,
        images=len(test.images),
        classes=classes if subset is None else f'{len(subset)} of {classes}',
        weights=weights,
        model=digest(cfg.model),
        pipeline=digest(cfg.test_dataloader.dataset.pipeline),
        data=digest(test.images, subset),
        library=f'imagecorruptions-imaug {version("imagecorruptions-imaug")}'
        if args.published is None
        else 'published',
    )
    results = Results.resume(out, settings)
    baseline = None
    if args.baseline == ALEXNET:
        image_size = test.first_image()[0].shape[:2]
        published = args.published is not None
        baseline = alexnet_baseline(classes, subset is not None, image_size, len(test.images), published)
    elif args.baseline is not None:
        baseline = file_baseline(Path(args.baseline), results, cells, ACCURACY)
    return test, results, baseline


def load_test_config(args: argparse.Namespace, trained: list[str] | None) -> tuple[Config, list[int] | None]:
    """Reads the config, and sets its data and images as the arguments say.

    Returns:
        The config, and the labels of --classes.
    """
    read = read_config(args.config)
    classifier = is_classifier(read)
    if not classifier:
        check_coco_metric(read)
        for name in ('classes', 'baseline', 'published'):
            if getattr(args, name):
                raise ValueError(f'--{name} is for classifiers, this config is a detector')
    data = Path(args.data) if classifier and args.data else None
    plan = open_plan(args.config, args.work_dir, args.cfg_options)
    if args.data and not classifier:
        use_data_folder(plan, str(args.data), needed=(), fit_images=False)
    plan.finish()
    cfg = plan.cfg
    subset = use_trained_classes(cfg, trained, data, args.classes) if classifier else None
    dataset = cfg.test_dataloader.dataset
    labels = dataset.get('labels')
    if labels and subset is None and len(labels) < len(dataset.classes):
        print(
            f'{data} has {len(labels)} of {len(dataset.classes)} classes; '
            f'--classes {data} restricts the answers to them'
        )
    verify('config', Built(cfg, ('test',)))
    choose_images(cfg, args.images, subset)
    cfg.test_dataloader.persistent_workers = False  # they would keep the first corruption
    if args.workers is not None:
        cfg.test_dataloader.num_workers = args.workers
    cfg.load_from = args.checkpoint
    cfg.log_level = 'WARNING'
    return cfg, subset


def open_test(
    cfg: Config, checkpoint: str, trained: list[str] | None, subset: list[int] | None, published: Path | None
) -> tuple[CorruptedTest, str]:
    """Returns the test of a config with a checkpoint, and a digest of the weights; `subset` restricts the answers."""
    runner = build_runner(cfg, splits=('test',))
    state_dict = read_state_dict(checkpoint)
    check_fit(runner.model, state_dict, checkpoint)
    if subset is not None:
        restrict_answers(runner.model.head, subset)
    return CorruptedTest(runner, is_classifier(cfg), published), digest(state_dict)


def draw(test: CorruptedTest, args: argparse.Namespace) -> None:
    """Draws the corruptions of the first image for each severity."""
    args.show_dir.mkdir(parents=True, exist_ok=True)
    image, path = test.first_image()
    for severity in args.severities:
        file = args.show_dir / f'severity_{severity}.png'
        cv2.imwrite(str(file), corruption_sheet(image, path, args.corruptions, severity))
        print(f'drawn: {file}', flush=True)


def run(test: CorruptedTest, results: Results, cells: list[Cell]) -> None:
    """Evaluates the cells that the results lack, and prints a line for each."""
    for cell in cells:
        if cell in results:
            continue
        start = time.perf_counter()
        results.add(cell, test.run(cell))
        name = cell[0] if cell == CLEAN else cell_name(cell)
        figures = ', '.join(f'{metric} {results.get(cell, metric):.3f}' for metric in main_metrics(results))
        print(f'{name:22} {figures} ({time.perf_counter() - start:.1f} s)', flush=True)


def report(results: Results, cells: list[Cell], baseline: Baseline | None) -> tuple[dict[str, Any], str]:
    """Returns the summary of the results, and its text."""
    summary, texts = {}, []
    for metric in main_metrics(results):
        clean, table = results.get(CLEAN, metric), results.table(cells, metric)
        if metric == ACCURACY:
            errors = {c: {s: 100 - accuracy for s, accuracy in values.items()} for c, values in table.items()}
            summary, text = classifier_report(100 - clean, errors, baseline)
        else:
            name = metric.partition('/')[2].partition('_')[0]
            precisions = {c: {s: 100 * ap for s, ap in values.items()} for c, values in table.items()}
            summary[name], text = detector_report(100 * clean, precisions, name)
        texts.append(text)
    return summary, '\n\n'.join(texts)


def main_metrics(results: Results) -> list[str]:
    """Returns the metrics that the report is about."""
    return [m for m in (ACCURACY, 'coco/bbox_mAP', 'coco/segm_mAP') if m in results.cells[cell_name(CLEAN)]]


if __name__ == '__main__':
    main()
