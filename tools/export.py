"""Writes a trained detector as one file: `python tools/export.py CONFIG CHECKPOINT OUT.onnx`."""

from tokennorm.cli.export import main

if __name__ == '__main__':
    main()
