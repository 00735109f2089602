"""Compares AP, time per image and size of a detector in PyTorch and in its exported files, in one table.

Each image goes through all of them in turn, on the CPU, one image per forward pass. The table has AP from 0 to 100,
and median milliseconds from decoded pixels to detections.

examples:
  tokennorm benchmark WORK_DIR detector.onnx fp16.onnx int8.onnx detector.xml --data DIR
"""

import argparse
from pathlib import Path

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, use_detector
from tokennorm.cli.command import Parser, command, import_openmmlab
from tokennorm.console import say
from tokennorm.messages import UserError, user_errors


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    add_detector_arguments(parser)
    parser.add_argument('files', nargs='+', metavar='FILE', help='.onnx and .xml files of `tokennorm export`')
    parser.add_argument('--data', required=True, metavar='DIR', help='dataset in any format of `tokennorm train`')
    parser.add_argument(
        '--split', choices=['train', 'val', 'test'], default='val', help='its images; default: %(default)s'
    )
    add_options_argument(parser)
    args = parser.parse_args(argv)
    use_detector(args, following='files')
    for name in args.files:
        if not name.endswith(('.onnx', '.xml')):
            parser.error(f'{name} must be an .onnx or .xml file of `tokennorm export`')
    return args


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    import_openmmlab()
    from tokennorm.export.measure import measure
    from tokennorm.inference.detector import TorchDetector
    from tokennorm.inference.runtime import ExportedDetector, ImageError, ModelFileError
    from tokennorm.plan.data import find_detection_data

    split = find_detection_data(args.data, (args.split,), where='--data: ')[args.split]
    with user_errors(ImageError, ModelFileError):
        files = [ExportedDetector(name) for name in args.files]
        trained = TorchDetector(args.config, args.checkpoint, 'cpu', args.cfg_options)
        if other := [name for name, file in zip(args.files, files, strict=True) if file.classes != trained.classes]:
            raise UserError(f'{other[0]} has other classes than {trained.checkpoint}; name files of the same detector')
        say(f'Checkpoint: {trained.description}\n{len(split.content["images"])} {args.split} images of {args.data}')
        measured = measure([trained, *files], split)
    sizes = [sum(value.nbytes for value in trained.model.state_dict().values())]
    sizes += [Path(name).stat().st_size for name in args.files]
    for i, weights in enumerate(Path(name).with_suffix('.bin') for name in args.files):
        if args.files[i].endswith('.xml') and weights.is_file():  # OpenVINO's second file
            sizes[i + 1] += weights.stat().st_size
    names = ['PyTorch', *args.files]
    width = max(map(len, names))
    heads = [f'{kind} AP' for kind in measured[0].aps] + ['ms per image', 'MiB']
    say(f'{"":{width}}  ' + '  '.join(heads))
    for name, result, size in zip(names, measured, sizes, strict=True):
        cells = [f'{100 * ap:.1f}' for ap in result.aps.values()]
        cells += [f'{result.milliseconds:.1f}', f'{size / 2**20:.1f}']
        say(f'{name:{width}}  ' + '  '.join(f'{cell:>{len(head)}}' for cell, head in zip(cells, heads, strict=True)))
