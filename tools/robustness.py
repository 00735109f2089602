"""How a classifier or detector does under ImageNet-C's corruptions: `python tools/robustness.py CONFIG CHECKPOINT`

Of a classifier it prints errors, and with --baseline mCE; of a detector mPC and rPC. Each corruption and severity is
written to the file of results when it is done, and not computed again.
"""

import argparse
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
from mmengine.config import Config

from tokennorm.checkpoints import check_fit, find_checkpoint, read_state_dict, trained_classes
from tokennorm.datasets.coco.checks import check_classes, check_config_data
from tokennorm.datasets.image_folder import is_classifier
from tokennorm.engine.hooks.data_errors import DataError
from tokennorm.engine.runner import build_runner, load_config
from tokennorm.engine.runner.options import ConfigOptions
from tokennorm.research.robustness.baselines import ALEXNET, Baseline, alexnet_baseline, file_baseline
from tokennorm.research.robustness.class_folders import restrict_answers, use_trained_classes
from tokennorm.research.robustness.corruptions import CORRUPTIONS, SEVERITIES, CorruptionError
from tokennorm.research.robustness.evaluation import ACCURACY, CorruptedTest, check_coco_metric, choose_images
from tokennorm.research.robustness.results import CLEAN, Cell, Results, cell_name, digest
from tokennorm.research.robustness.sheet import corruption_sheet
from tokennorm.research.robustness.tables import classifier_report, detector_report


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file, or the work folder of a training')
    parser.add_argument(
        '--data',
        metavar='DIR',
        help='data to use instead of that of the config: COCO format, or for classifiers a folder per class',
    )
    parser.add_argument(
        '--classes',
        type=Path,
        metavar='PATH',
        help='of a classifier: the names of some of its classes, as folders or lines of a file; '
        'images of others are left out, and others are no answers',
    )
    parser.add_argument(
        '--corruptions', nargs='+', choices=['none', *CORRUPTIONS], metavar='NAME', help='default: all 15; or none'
    )
    parser.add_argument('--severities', nargs='+', type=int, choices=SEVERITIES, default=list(SEVERITIES), metavar='N')
    parser.add_argument('--images', type=int, metavar='N', help='so many of the images, taken evenly; default: all')
    parser.add_argument(
        '--baseline',
        metavar=f'{ALEXNET}|FILE',
        help="whose errors mCE divides by: AlexNet's on ImageNet-C, or those in another model's file of results",
    )
    parser.add_argument('--out', type=Path, help='file of results, .json; default: WORK_DIR/robustness.json')
    parser.add_argument('--show-dir', type=Path, help='draw the corruptions of the first image into this folder')
    parser.add_argument('--workers', type=int, metavar='N', help='processes that read images; default: as the config')
    parser.add_argument('--work-dir', help='folder for logs; default: that of the config, or work_dirs/NAME')
    parser.add_argument('--cfg-options', nargs='+', action=ConfigOptions, help='entries of the config, as key=value')
    parser.set_defaults(launcher='none', local_rank=0)
    args = parser.parse_args(argv)
    if args.images is not None and args.images < 1:
        parser.error(f'--images {args.images} must be at least 1')
    if args.workers is not None and args.workers < 0:
        parser.error(f'--workers {args.workers} must be at least 0')
    if args.out is not None and args.out.suffix != '.json':
        parser.error(f'--out {args.out}: the file must end in .json')
    if args.corruptions is not None and 'none' in args.corruptions and len(args.corruptions) > 1:
        parser.error('--corruptions: none stands alone')
    if args.corruptions == ['none'] and args.baseline:
        parser.error('--baseline needs corruptions')
    args.corruptions = [name for name in CORRUPTIONS if args.corruptions is None or name in args.corruptions]
    args.severities = sorted(set(args.severities))
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    cells = [(corruption, severity) for corruption in args.corruptions for severity in args.severities]
    try:
        test, results, baseline = prepare(args, cells)
        if args.show_dir is not None and cells:
            draw(test, args)
    except (ImportError, RuntimeError, OSError, ValueError) as error:
        raise SystemExit(f'error: {error}') from None
    print(f'{results.settings["images"]} images, results in {results.path}', flush=True)
    try:
        run(test, results, [CLEAN, *cells])
    except (CorruptionError, DataError) as error:  # of a worker, with its traceback in the text
        raise SystemExit(f'error: {str(error).strip().splitlines()[-1]}') from None
    except KeyboardInterrupt:
        raise SystemExit(f'\nInterrupted. The same command goes on from {results.path}') from None
    results.summary, text = report(results, cells, baseline)
    results.write()
    print(f'\n{text}')


def prepare(args: argparse.Namespace, cells: list[Cell]) -> tuple[CorruptedTest, Results, Baseline | None]:
    """What is to be run, what was run already, and what it will be compared with.

    Raises:
        ImportError, RuntimeError, OSError, ValueError: with what to do, where arguments, config, checkpoint, data and
            files do not go together.
    """
    if not Path(args.config).is_file():
        raise ValueError(f'config {args.config} is not there')
    args.checkpoint = find_checkpoint(args.checkpoint)
    trained = trained_classes(args.checkpoint)
    cfg, subset = load_test_config(args, trained)
    test, weights = open_test(cfg, args.checkpoint, trained, subset)
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
        library=f'imagecorruptions-imaug {version("imagecorruptions-imaug")}',
    )
    results = Results.go_on(args.out or Path(cfg.work_dir, 'robustness.json'), settings)
    baseline = None
    if args.baseline == ALEXNET:
        image_size = test.first_image()[0].shape[:2]
        baseline = alexnet_baseline(classes, subset is not None, image_size, len(test.images))
    elif args.baseline is not None:
        baseline = file_baseline(Path(args.baseline), results, cells, ACCURACY)
    return test, results, baseline


def load_test_config(args: argparse.Namespace, trained: list[str] | None) -> tuple[Config, list[int] | None]:
    """The config that the arguments name, with their data and their choice of images.

    Args:
        args: The arguments.
        trained: The classes of the checkpoint, where it says them.

    Returns:
        The config, and the labels of --classes.
    """
    read = Config.fromfile(args.config)
    classifier = is_classifier(read)
    if not classifier:
        check_coco_metric(read)
        if args.classes or args.baseline:
            raise ValueError(
                f'--{"classes" if args.classes else "baseline"} is for classifiers, and this is a detector'
            )
    data = Path(args.data) if classifier and args.data else None
    if classifier:
        args.data = None  # load_config would take its classes for the classifier's
    cfg = load_config(args, needed=())
    subset = use_trained_classes(cfg, trained, data, args.classes) if classifier else None
    dataset = cfg.test_dataloader.dataset
    labels = dataset.get('labels')
    if labels and subset is None and len(labels) < len(dataset.classes):
        print(
            f'{data} has {len(labels)} of {len(dataset.classes)} classes; '
            f'--classes {data} leaves the others out of the answers'
        )
    check_config_data(cfg, ('test',))
    choose_images(cfg, args.images, subset)
    cfg.test_dataloader.persistent_workers = False  # they would go on with the first corruption
    if args.workers is not None:
        cfg.test_dataloader.num_workers = args.workers
    cfg.load_from = args.checkpoint
    cfg.log_level = 'WARNING'
    return cfg, subset


def open_test(
    cfg: Config, checkpoint: str, trained: list[str] | None, subset: list[int] | None
) -> tuple[CorruptedTest, str]:
    """The test of a config and of a checkpoint that fits it, and a digest of the weights. Of a `subset` of the labels,
    the others are no answers."""
    runner = build_runner(cfg, splits=('test',))
    if trained is not None:
        check_classes(trained, runner.test_dataloader.dataset.metainfo['classes'], checkpoint)
    state_dict = read_state_dict(checkpoint)
    check_fit(runner.model, state_dict, checkpoint)
    if subset is not None:
        restrict_answers(runner.model.head, subset)
    return CorruptedTest(runner, is_classifier(cfg)), digest(state_dict)


def draw(test: CorruptedTest, args: argparse.Namespace) -> None:
    """A sheet of the first image for each severity."""
    args.show_dir.mkdir(parents=True, exist_ok=True)
    image, path = test.first_image()
    for severity in args.severities:
        file = args.show_dir / f'severity_{severity}.png'
        cv2.imwrite(str(file), corruption_sheet(image, path, args.corruptions, severity))
        print(f'drawn: {file}', flush=True)


def run(test: CorruptedTest, results: Results, cells: list[Cell]) -> None:
    """Evaluates what is not in the results yet, a line each."""
    for cell in cells:
        if cell in results:
            continue
        start = time.perf_counter()
        results.add(cell, test.run(cell))
        name = cell[0] if cell == CLEAN else cell_name(cell)
        figures = ', '.join(f'{metric} {results.get(cell, metric):.3f}' for metric in main_metrics(results))
        print(f'{name:22} {figures} ({time.perf_counter() - start:.1f} s)', flush=True)


def report(results: Results, cells: list[Cell], baseline: Baseline | None) -> tuple[dict[str, Any], str]:
    """The summary of cells that are there, and what is printed of it."""
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
    """Which of its metrics the report is about."""
    return [m for m in (ACCURACY, 'coco/bbox_mAP', 'coco/segm_mAP') if m in results.cells[cell_name(CLEAN)]]


if __name__ == '__main__':
    main()
