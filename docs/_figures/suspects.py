"""Draws docs/_static/suspects.jpg: the first eight suspects of a split of a dataset.

python docs/_figures/suspects.py RUN DATA SPLIT
"""

import sys
import tempfile
from pathlib import Path

import cv2

import tokennorm
from tokennorm.datasets.contact_sheet import tile
from tokennorm.datasets.discovery import find_splits
from tokennorm.report.label_tools import draw_suspect

OUT = Path(__file__).resolve().parents[1] / '_static' / 'suspects.jpg'


def main(run: str, data: str, name: str) -> None:
    split = find_splits(data, (name,))[name]
    with tempfile.TemporaryDirectory() as folder:
        suspects = tokennorm.audit(run, data=data, split=name, out=folder, most=1).suspects
    sheet = tile([draw_suspect(split, one) for one in suspects[:8]], 4)
    small = cv2.resize(sheet, None, fx=0.6, fy=0.6, interpolation=cv2.INTER_AREA)
    cv2.imwrite(str(OUT), small, [cv2.IMWRITE_JPEG_QUALITY, 85])


if __name__ == '__main__':
    main(*sys.argv[1:])
