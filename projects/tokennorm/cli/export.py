"""Writes a trained detector as one file that runs without its config: .onnx, .pt2 (PyTorch) or .xml (OpenVINO)."""

import argparse
from pathlib import Path

from tokennorm.checkpoints import find_checkpoint
from tokennorm.engine.check_env import require_mmcv_ops
from tokennorm.engine.prediction import build_inferencer
from tokennorm.engine.runner import read_config, use_options
from tokennorm.engine.runner.options import ConfigOptions
from tokennorm.export.detector import WholeDetector
from tokennorm.export.metadata import describe
from tokennorm.export.runtime import ModelFileError
from tokennorm.export.verify import compare
from tokennorm.export.writing import SUFFIXES, check_packages, export_detector


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', type=Path, help='config file')
    parser.add_argument('checkpoint', help='checkpoint trained with that config, or its work directory')
    parser.add_argument('out', type=Path, metavar='OUT', help=f'output file; must end in {", ".join(SUFFIXES)}')
    parser.add_argument('--fp16', action='store_true', help='compute in float16; .onnx only')
    parser.add_argument('--license', default='', help='license of the weights, written to the metadata')
    parser.add_argument(
        '--verify',
        type=Path,
        metavar='DIR',
        help='folder in COCO format: print the AP of the written file and of PyTorch on its images; exit status 1 if '
        'they differ in the third digit. Not for .pt2',
    )
    parser.add_argument(
        '--split', default='val', help='split that --verify uses: annotations/SPLIT.json; default: %(default)s'
    )
    parser.add_argument('--cfg-options', nargs='+', action=ConfigOptions, help='config entries to set, as key=value')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    _check(args)
    try:
        check_packages(args.out.suffix)
        require_mmcv_ops()
        cfg = read_config(args.config)
        use_options(cfg, args.cfg_options)
        inferencer = build_inferencer(cfg, find_checkpoint(args.checkpoint), 'cpu')
        detector = WholeDetector(inferencer.model)
        metadata = describe(detector, cfg, inferencer.model.dataset_meta, args.config.name, args.license)
        export_detector(detector, metadata, args.out, args.fp16)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise SystemExit(f'error: {error}') from None
    classes = inferencer.model.dataset_meta['classes']
    print(f'{args.out}: {args.out.stat().st_size / 2**20:.1f} MiB, {len(classes)} classes')
    if args.verify is not None:
        try:
            results = compare(inferencer, args.out, args.verify, args.split)
        except (ModelFileError, OSError, ValueError) as error:
            raise SystemExit(f'error: --verify: {error}') from None
        for result in results:
            print(result)
        if not all(result.equal for result in results):
            raise SystemExit(1)


def _check(args: argparse.Namespace) -> None:
    """Raises SystemExit for arguments that cannot work, before anything long begins."""
    if not args.config.is_file():
        raise SystemExit(f'error: config {args.config} not found')
    if args.out.suffix not in SUFFIXES:
        raise SystemExit(f'error: OUT {args.out} must end in {", ".join(SUFFIXES)}')
    if args.fp16 and args.out.suffix != '.onnx':
        raise SystemExit(f'error: --fp16 needs an .onnx file, not {args.out}')
    if args.verify is not None and args.out.suffix == '.pt2':
        raise SystemExit('error: --verify needs an .onnx or .xml file')
    if args.verify is not None and not (args.verify / 'annotations' / f'{args.split}.json').is_file():
        raise SystemExit(f'error: --verify: {args.verify}/annotations/{args.split}.json not found; see --split')
