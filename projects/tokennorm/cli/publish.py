"""Makes a training run's checkpoint small and safe to share: weights, classes and config, without the optimizer.

The file OUT-1a2b3c4d.pth, or OUT-1a2b3c4d.safetensors, has the first digits of its SHA-256 in its name. Loading it runs
no code. A model card, README.md, is written next to it.

examples:
  tokennorm publish work_dirs/NAME detector.safetensors
"""

from pathlib import Path

from tokennorm.cli.command import Parser, add_json, arguments_of, command, show
from tokennorm.commands.publish import publish


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('source', help='checkpoint, or work directory of a training run: its best checkpoint')
    parser.add_argument('out', type=Path, help='.pth or .safetensors; the hash is added to its name')
    parser.add_argument('--license', default='', help='license of the weights, for the model card')
    add_json(parser)
    args = parser.parse_args(argv)
    show(publish(**arguments_of(publish, args)), args)
