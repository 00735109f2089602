"""Evaluates under ImageNet-C's corruptions: `python tools/robustness.py CONFIG CHECKPOINT`."""

from tokennorm.cli.robustness import main

if __name__ == '__main__':
    main()
