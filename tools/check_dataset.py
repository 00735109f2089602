"""Checks a dataset before training: `python tools/check_dataset.py DIR`, the same as `tokennorm check`."""

from tokennorm.cli.check import main

if __name__ == '__main__':
    main()
