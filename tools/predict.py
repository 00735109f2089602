"""Detects objects: `python tools/predict.py CONFIG CHECKPOINT PATH`, the same as `tokennorm predict`."""

from tokennorm.cli.predict import main

if __name__ == '__main__':
    main()
