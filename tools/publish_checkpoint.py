"""Makes of a training's checkpoint the file to give away: `python tools/publish_checkpoint.py SOURCE OUT.pth`.

Weights, classes and config stay; the optimizer and the histories go. It is written as OUT-1a2b3c4d.pth, with the first
digits of its SHA-256, and runs no code where it is loaded.
"""

import argparse
from pathlib import Path

from tokennorm.checkpoints import find_checkpoint, read_checkpoint
from tokennorm.checkpoints.writing import for_publication, hashed_name, to_bytes, write_new


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('source', help='checkpoint, or work folder of a training: its latest one')
    parser.add_argument('out', type=Path, help='file to write, to whose name the hash is added')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    try:
        source = find_checkpoint(args.source)
        content = read_checkpoint(source)
        published = for_publication(content, source)
        written = to_bytes(published)
        out = hashed_name(args.out, written)
        write_new(out, written)
    except (OSError, RuntimeError) as error:
        raise SystemExit(f'error: {error}') from None
    numbers = sum(value.numel() for value in published['state_dict'].values())
    size = f', of {Path(source).stat().st_size / 1e6:.1f} MB' if Path(source).is_file() else ''
    left_out = sorted(set(content) - set(published)) if 'state_dict' in content else []
    print(f'{out}: {len(written) / 1e6:.1f} MB{size}; {numbers:,} numbers in {len(published["state_dict"])} tensors')
    print(f'left out: {", ".join(left_out) or "nothing"}')


if __name__ == '__main__':
    main()
