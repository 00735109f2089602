"""Makes a training run's checkpoint small and safe to share: weights, classes and config, without the optimizer.

The file OUT-1a2b3c4d.pth, or OUT-1a2b3c4d.safetensors, has the first digits of its SHA-256 in its name. Loading it runs
no code. `--hf DIR` writes a folder for the Hugging Face Hub instead: model.safetensors, config.py and a model card.

examples:
  tokennorm publish work_dirs/NAME detector.safetensors
  tokennorm publish work_dirs/NAME --hf detector --license apache-2.0
"""

from pathlib import Path

from tokennorm.cli.command import command, make_parser
from tokennorm.messages import user_errors


@command
def main(argv: list[str]) -> None:
    parser = make_parser(__doc__)
    parser.add_argument('source', help='checkpoint, or work directory of a training run: its best checkpoint')
    parser.add_argument('out', type=Path, nargs='?', help='.pth or .safetensors; the hash is added to its name')
    parser.add_argument('--hf', type=Path, metavar='DIR', help='write a folder that can be uploaded to the Hub')
    parser.add_argument('--license', default='unknown', help="license of the weights for the card, e.g. 'apache-2.0'")
    parser.add_argument('--dataset', help='name of the training data for the card')
    args = parser.parse_args(argv)
    if (args.out is None) == (args.hf is None):
        parser.error('give either OUT or --hf DIR')

    from tokennorm.checkpoints import find_checkpoint, read_checkpoint
    from tokennorm.checkpoints.reading import describe
    from tokennorm.checkpoints.writing import for_publication, hashed_name, to_bytes, write_new
    from tokennorm.files import make_output_dir

    with user_errors(OSError, RuntimeError, ValueError):
        source = find_checkpoint(args.source)
        content = read_checkpoint(source)
        published = for_publication(content, source)
        make_output_dir((args.hf or args.out).parent)
        if args.hf is not None:
            from tokennorm.export.model_card import write_hub_folder

            files = write_hub_folder(args.hf, published, Path(source), args.license, args.dataset)
            written = files[0].stat().st_size
        else:
            suffix = '.safetensors' if args.out.suffix == '.safetensors' else '.pth'
            file = to_bytes(published, suffix)
            files, written = [hashed_name(args.out, file, suffix)], len(file)
            write_new(files[0], file)
    count = sum(value.numel() for value in published['state_dict'].values())
    size = f' instead of {Path(source).stat().st_size / 1e6:.1f} MB' if Path(source).is_file() else ''
    print(f'{files[0]}: {written / 1e6:.1f} MB{size}; {count:,} numbers in {len(published["state_dict"])} tensors')
    print(f'from {describe(content, source)}')
    if files[1:]:
        print(f'also written: {", ".join(map(str, files[1:]))}')
    dropped = sorted(set(content) - set(published)) if 'state_dict' in content else []
    print(f'left out: {", ".join(dropped) or "nothing"}')
