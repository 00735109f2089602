"""Makes a training run's checkpoint small and safe to share: weights, classes and config, without the optimizer.

The file OUT-1a2b3c4d.pth, or OUT-1a2b3c4d.safetensors, has the first digits of its SHA-256 in its name. Loading it runs
no code. A model card, README.md, is written next to it.

examples:
  tokennorm publish work_dirs/NAME detector.safetensors
"""

from pathlib import Path

from tokennorm.cli.command import Parser, add_json, call, command, show
from tokennorm.commands.publish import publish


def build_parser() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument('source', help='checkpoint, or work directory of a training run: its best checkpoint')
    parser.add_argument('out', type=Path, help='.pth or .safetensors; the hash is added to its name')
    parser.add_argument('--license', default='', help='license of the weights, for the model card')
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    show(call(publish, args), args)
