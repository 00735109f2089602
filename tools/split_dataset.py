"""Divides one annotation file into train and val: `python tools/split_dataset.py FILE`, as `tokennorm split`."""

from tokennorm.cli.split import main

if __name__ == '__main__':
    main()
