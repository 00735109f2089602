"""Evaluates a detector or a classifier: `python tools/test.py CONFIG CHECKPOINT`, the same as `tokennorm test`."""

from tokennorm.cli.test import main

if __name__ == '__main__':
    main()
