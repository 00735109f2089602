"""Writes a detector as one file that runs without its config: .onnx, .pt2 (PyTorch) or .xml (OpenVINO).

A model card, README.md, is written next to it.

examples:
  tokennorm export WORK_DIR detector.onnx --verify DIR
  tokennorm export CONFIG CHECKPOINT detector.pt2
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, use_detector
from tokennorm.cli.command import Parser, command, import_openmmlab
from tokennorm.console import say
from tokennorm.files import check_output_file
from tokennorm.messages import UserError, shorten, user_errors

SUFFIXES = ('.onnx', '.pt2', '.xml')
# a difference, one of float16, and a loss of AP by INT8, from 0 to 1, with which --verify fails
TOLERANCE, TOLERANCE_FP16, TOLERANCE_INT8 = 5e-4, 5e-3, 1e-2


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    add_detector_arguments(parser)
    parser.add_argument('out', type=Path, metavar='OUT', help='output file; must end in .onnx, .pt2 or .xml')
    to_file, verification = map(parser.add_argument_group, ('file', 'verification'))
    to_file.add_argument(
        '--fp16', action='store_true', help='compute backbone, neck and heads in float16, which halves the file'
    )
    to_file.add_argument(
        '--int8',
        action='store_true',
        help='quantize convolutions and linear layers to INT8 with the images of --calibrate; for .onnx and .xml',
    )
    to_file.add_argument(
        '--calibrate', type=Path, metavar='DIR', help='folder of images for --int8, of which at most 100 are used'
    )
    to_file.add_argument(
        '--license', default='', help='license of the weights, for the metadata of the file and its model card'
    )
    verification.add_argument(
        '--verify',
        type=Path,
        metavar='DIR',
        help='dataset in any format of --data: evaluate the written file and PyTorch on its images; the exit status '
        'is 1 if their APs, from 0 to 100, differ by 0.05 or more, with --fp16 by 0.5, or with --int8 if that of '
        'the file is lower by 1.0 or more. Not for .pt2',
    )
    verification.add_argument(
        '--split', choices=['train', 'val', 'test'], default='val', help='split for --verify; default: %(default)s'
    )
    to_file.add_argument(
        '--thresholds',
        metavar='best|NUMBER|FILE',
        help='score thresholds of each class for the metadata of the file, where `--thresholds best` of `predict` '
        "finds them: best for those that the training run's report recommends, a number, or a thresholds.json; "
        'default: best if the run has them',
    )
    add_options_argument(parser)
    args = parser.parse_args(argv)
    if args.out.suffix not in SUFFIXES:
        parser.error(f'OUT {args.out} must end in .onnx, .pt2 or .xml')
    if args.int8 != (args.calibrate is not None):
        parser.error('--int8 and --calibrate DIR need each other')
    if args.int8 and (args.out.suffix == '.pt2' or args.fp16):
        parser.error('--int8 writes .onnx and .xml files, without --fp16')
    if args.verify is not None and args.out.suffix == '.pt2':
        parser.error('--verify needs an .onnx or .xml file')
    use_detector(args)
    return args


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    check_output_file(args.out)
    import_openmmlab()
    from tokennorm.datasets.image_files import list_images
    from tokennorm.export.detector import WholeDetector
    from tokennorm.export.writing import check_packages, describe, export_detector
    from tokennorm.inference.detector import TorchDetector
    from tokennorm.inference.runtime import ImageError, ThresholdError
    from tokennorm.plan.data import find_detection_data
    from tokennorm.report.card import Card, report_of, write_card

    split = None
    if args.verify is not None:
        split = find_detection_data(args.verify, (args.split,), where='--verify: ')[args.split]
    if args.int8 and not (Path(args.calibrate).is_dir() and list_images(args.calibrate)):
        raise UserError(f'--calibrate: {args.calibrate} has no images; name a folder with some, .jpg or .png')
    check_packages(args.out.suffix, args.int8)
    trained = TorchDetector(args.config, args.checkpoint, 'cpu', args.cfg_options)
    say(f'Checkpoint: {trained.description}')
    say(f'Writing {args.out}, which takes a minute or more')
    detector = WholeDetector(trained.model, args.fp16)
    meta = trained.model.dataset_meta
    thresholds = None
    with user_errors(ThresholdError):
        if args.thresholds is not None or trained.recommended is not None:
            thresholds = trained.thresholds(args.thresholds or 'best').tolist()
    metadata = describe(detector, trained.cfg, meta, Path(args.config).name, args.license, thresholds)
    with user_errors(ImageError, where='--calibrate: '):
        export_detector(detector, metadata, args.out, list_images(args.calibrate) if args.int8 else ())
    files = [args.out, args.out.with_suffix('.bin')] if args.out.suffix == '.xml' else [args.out]
    size = sum(file.stat().st_size for file in files) / 2**20
    say(f'{args.out}: {size:.1f} MiB, classes: {shorten(meta["classes"])}')
    card = Card(
        args.out,
        meta['classes'],
        config=Path(args.config).name,
        license=args.license,
        report=report_of(trained.checkpoint),
        metadata={name.removeprefix('tokennorm.'): json.loads(value) for name, value in metadata.items()},
    )
    say(f'Model card: {write_card(card)}')
    if split is not None:
        from tokennorm.export.measure import measure
        from tokennorm.inference.runtime import ExportedDetector

        say(f'Evaluating PyTorch and {args.out} on the {args.split} images of {args.verify}')
        with user_errors(ImageError, where='--verify: '):
            pytorch, exported = measure([trained, ExportedDetector(args.out)], split)
        tolerance = TOLERANCE_INT8 if args.int8 else TOLERANCE_FP16 if args.fp16 else TOLERANCE
        losses = {kind: ap - exported.aps[kind] for kind, ap in pytorch.aps.items()}
        differences = losses if args.int8 else {kind: abs(loss) for kind, loss in losses.items()}  # INT8 may be better
        for kind, value in differences.items():
            say(
                f'{kind} AP on {len(split.content["images"])} images: exported {100 * exported.aps[kind]:.2f}, PyTorch '
                f'{100 * pytorch.aps[kind]:.2f}: {"a loss of" if args.int8 else "they differ by"} '
                f'{"less than" if value < tolerance else "at least"} {100 * tolerance:g}'
            )
        aps = ', '.join(f'{kind} AP {100 * ap:.2f}' for kind, ap in exported.aps.items())
        write_card(replace(card, measured=f'This file, on {len(split.content["images"])} images: {aps}.'))
        if max(pytorch.aps.values()) < 0.01:
            say('An AP near 0 hardly compares them: verify with data that the detector was trained for')
        if max(differences.values()) >= tolerance:
            advice = '; calibrate with more images, or leave out --int8' * args.int8 + '; leave out --fp16' * args.fp16
            raise UserError(f'--verify: {args.out} is written, and its AP is not that of PyTorch{advice}')
