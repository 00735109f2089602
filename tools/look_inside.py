"""Draws the DTN paper's figures of a backbone: `python tools/look_inside.py FIGURE ...`, as `tokennorm analyze`."""

from tokennorm.cli.analyze import main

if __name__ == '__main__':
    main()
