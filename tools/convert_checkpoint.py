"""Converts a backbone's checkpoint: `python tools/convert_checkpoint.py SOURCE OUT --config CONFIG`."""

from tokennorm.cli.convert import main

if __name__ == '__main__':
    main()
