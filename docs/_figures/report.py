"""Draws docs/_static/report.jpg: the top of a report of `tokennorm test RUN --data DIR --report`, in a browser.

python docs/_figures/report.py report.html [chromium]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import cv2

OUT = Path(__file__).resolve().parents[1] / '_static' / 'report.jpg'
WIDTH, HEIGHT, SHOWN = 1100, 1250, 800  # pixels of the window, and the width of the picture


def main(report: str, browser: str = 'chromium') -> None:
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder, 'shot.png')
        window = ['--headless', '--hide-scrollbars', f'--window-size={WIDTH},{HEIGHT}']
        subprocess.run([browser, *window, f'--screenshot={shot}', Path(report).resolve().as_uri()], check=True)
        picture = cv2.imread(str(shot))
    picture = cv2.resize(picture, (SHOWN, round(picture.shape[0] * SHOWN / WIDTH)), interpolation=cv2.INTER_AREA)
    cv2.imwrite(str(OUT), picture, [cv2.IMWRITE_JPEG_QUALITY, 85])


if __name__ == '__main__':
    main(*sys.argv[1:])
