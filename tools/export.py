"""Exports a detector: `python tools/export.py CONFIG CHECKPOINT OUT`, the same as `tokennorm export`."""

from tokennorm.cli.export import main

if __name__ == '__main__':
    main()
