"""Repeats an iteration that went wrong: `python tools/repeat_batch.py CONFIG FILE`, of a training's `non_finite`."""

import argparse

from tokennorm.engine.resume.repeat_batch import repeat_batch
from tokennorm.engine.runner import read_config


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help='config that the training left in its work folder')
    parser.add_argument('file', help='file in the folder non_finite of its work folder')
    parser.add_argument('--device', default='cpu', help='such as cuda:0; default: cpu')
    args = parser.parse_args(argv)
    try:
        print('\n'.join(repeat_batch(read_config(args.config), args.file, args.device)))
    except (ValueError, RuntimeError, OSError) as error:
        raise SystemExit(f'error: {error}') from None


if __name__ == '__main__':
    main()
