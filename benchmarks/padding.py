"""Effect of padding on a trained detector: COCO AP at batch 1 and 4, on validation images cut to mixed sizes.

    python benchmarks/padding.py CONFIG CHECKPOINT DATA

With the config's data preprocessor, which tells the norms what is padding, and with mmdet's, which does not. The cuts
are the same in every run; objects of which less than half is left are dropped.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
from measuring import print_table

from tokennorm.datasets.discovery import find_splits
from tokennorm.datasets.splits import CocoSplit

TEST = Path(__file__).resolve().parents[1] / 'tools' / 'test.py'
SHARES = (0.4, 0.6, 0.8, 1.0)


def write_cut_images(split: CocoSplit, out: Path) -> None:
    """The split's images, each cut to a share of its height or its width, as `val` of a COCO folder."""
    choose = random.Random(0)
    (out / 'images').mkdir()
    annotations = []
    for image in split.content['images']:
        pixels = cv2.imread(str(split.image_dir / image['file_name']))
        height, width = pixels.shape[:2]
        size = [height, width]
        size[choose.randrange(2)] *= choose.choice(SHARES)
        h, w = map(int, size)
        top, left = choose.randint(0, height - h), choose.randint(0, width - w)
        cv2.imwrite(str(out / 'images' / f'{image["id"]}.png'), pixels[top : top + h, left : left + w])
        for annotation in split.content['annotations']:
            if annotation['image_id'] == image['id']:
                x, y, bw, bh = annotation['bbox']
                x1, y1 = max(x - left, 0), max(y - top, 0)
                kept = [x1, y1, min(x - left + bw, w) - x1, min(y - top + bh, h) - y1]
                if min(kept[2:]) >= 2 and kept[2] * kept[3] >= 0.5 * bw * bh:
                    entry = {key: annotation[key] for key in ('id', 'image_id', 'category_id', 'iscrowd')}
                    annotations.append(entry | dict(bbox=kept, area=kept[2] * kept[3]))
        image.update(file_name=f'{image["id"]}.png', height=h, width=w)
    (out / 'val.json').write_text(json.dumps(dict(split.content) | dict(annotations=annotations)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config')
    parser.add_argument('checkpoint')
    parser.add_argument('data', type=Path, help='folder in COCO format')
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_cut_images(find_splits(args.data, needed=('val',))['val'], Path(folder))
        for preprocessor in ('tokennorm.DetDataPreprocessor', 'DetDataPreprocessor'):
            for batch_size in (1, 4):
                command = [sys.executable, TEST, args.config, args.checkpoint, '--data', folder, '--work-dir', folder]
                options = [f'model.data_preprocessor.type={preprocessor}', f'test_dataloader.batch_size={batch_size}']
                done = subprocess.run([*command, '--cfg-options', *options], capture_output=True, text=True)
                found = re.findall(r'coco/bbox_mAP: ([0-9.]+)', done.stdout + done.stderr)
                if not found:
                    raise SystemExit(done.stdout + done.stderr)
                rows.append({'preprocessor': preprocessor, 'batch': str(batch_size), 'box AP': found[-1]})
    print_table(rows)


if __name__ == '__main__':
    main()
