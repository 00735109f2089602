"""Trains a detector or a classifier: `python tools/train.py CONFIG`, the same as `tokennorm train`."""

from tokennorm.cli.train import main

if __name__ == '__main__':
    main()
