"""Makes a training run's checkpoint small and safe to share: weights, classes and config, without the optimizer.

The file OUT-1a2b3c4d.pth, or OUT-1a2b3c4d.safetensors, has the first digits of its SHA-256 in its name. Loading it runs
no code. A model card, README.md, is written next to it.

examples:
  tokennorm publish work_dirs/NAME detector.safetensors
"""

import hashlib
import json
from pathlib import Path

from tokennorm.cli.command import Parser, command
from tokennorm.console import say


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('source', help='checkpoint, or work directory of a training run: its best checkpoint')
    parser.add_argument('out', type=Path, help='.pth or .safetensors; the hash is added to its name')
    parser.add_argument('--license', default='', help='license of the weights, for the model card')
    args = parser.parse_args(argv)
    if args.out.suffix not in ('.pth', '.safetensors'):
        parser.error(f'{args.out}: name a file that ends in .pth or .safetensors')

    from tokennorm.checkpoints import Checkpoint
    from tokennorm.checkpoints.writing import for_publication, to_bytes, write_new
    from tokennorm.files import make_output_dir
    from tokennorm.inference.runtime import thresholds_of
    from tokennorm.report.card import Card, report_of, write_card

    checkpoint = Checkpoint.read(args.source)
    source = Path(checkpoint.source)
    published = for_publication(checkpoint.content, checkpoint.source)
    if (thresholds := thresholds_of(source)) is not None:
        published['meta']['thresholds'] = json.loads(thresholds.read_text(encoding='utf-8'))['classes']
    make_output_dir(args.out.parent)
    suffix = '.safetensors' if args.out.suffix == '.safetensors' else '.pth'
    file = to_bytes(published, suffix)
    name = args.out.name.removesuffix('.pth').removesuffix(suffix)
    out = args.out.with_name(f'{name}-{hashlib.sha256(file).hexdigest()[:8]}{suffix}')
    write_new(out, file)
    before = f' instead of {source.stat().st_size / 1e6:.1f} MB' if source.is_file() else ''
    say(f'{out}: {len(file) / 1e6:.1f} MB{before}, {len(published["state_dict"])} tensors')
    say(f'from {checkpoint}')
    dropped = sorted(set(checkpoint.content) - set(published)) if 'state_dict' in checkpoint.content else []
    say(f'left out: {", ".join(dropped) or "nothing"}')
    classes = checkpoint.dataset_meta.get('classes') or ()
    card = write_card(Card(out, classes, license=args.license, report=report_of(source)))
    say(f'model card: {card}')
