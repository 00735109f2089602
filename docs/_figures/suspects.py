"""Draws docs/_static/suspects.jpg: the first eight suspects of a split, by the detections next to a report.

python docs/_figures/suspects.py RUN/report.bbox.json DATA SPLIT
"""

import sys
from pathlib import Path

import cv2

from tokennorm.datasets.contact_sheet import tile
from tokennorm.datasets.discovery import find_splits
from tokennorm.evaluation.analysis import evaluate, select_categories
from tokennorm.evaluation.results import CocoResults
from tokennorm.evaluation.suspects import as_rows
from tokennorm.report.label_tools import draw_suspect

OUT = Path(__file__).resolve().parents[1] / '_static' / 'suspects.jpg'


def main(detections: str, data: str, name: str) -> None:
    split = find_splits(data, (name,))[name]
    truth = select_categories(dict(split.content), None)
    rows = as_rows(evaluate(truth, CocoResults.read(detections)).suspects, truth)
    sheet = tile([draw_suspect(split, one) for one in rows[:8]], 4)
    small = cv2.resize(sheet, None, fx=0.6, fy=0.6, interpolation=cv2.INTER_AREA)
    cv2.imwrite(str(OUT), small, [cv2.IMWRITE_JPEG_QUALITY, 85])


if __name__ == '__main__':
    main(*sys.argv[1:])
