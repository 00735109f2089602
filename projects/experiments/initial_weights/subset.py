"""Writes part of a dataset in COCO format: the most frequent classes, or some of the images, or both.

    python projects/experiments/initial_weights/subset.py data/coco_mini data/coco_mini5_boxes --classes 5 --boxes
    python projects/experiments/initial_weights/subset.py data/nuclei data/nuclei150 --images train=150 val=60

    python projects/experiments/initial_weights/subset.py data/raccoon data/raccoon50 --images train=50

Images are drawn at random with a fixed seed. With --classes, images without one of them are left out. A folder with
Pascal VOC's ImageSets/Main keeps its format.
"""

import argparse
import json
import random
from collections import Counter
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument('folder', type=Path, help='with annotations/train.json, annotations/val.json and images/, or VOC')
parser.add_argument('out', type=Path, help='new folder; its images are a link')
parser.add_argument('--classes', type=int, metavar='N', help='classes with most objects in train')
parser.add_argument('--images', nargs='+', default=[], metavar='SPLIT=N', help='number of images')
parser.add_argument('--boxes', action='store_true', help='without segmentations')
args = parser.parse_args()
numbers = dict(pair.split('=') for pair in args.images)
if (lists := args.folder / 'ImageSets' / 'Main').is_dir():
    (args.out / 'ImageSets' / 'Main').mkdir(parents=True)
    for path in lists.glob('*.txt'):
        names = path.read_text('utf-8').split()
        names = random.Random(0).sample(names, int(numbers.get(path.stem, len(names))))
        (args.out / 'ImageSets' / 'Main' / path.name).write_text(''.join(f'{name}\n' for name in names), 'utf-8')
    for name in ('JPEGImages', 'Annotations'):
        (args.out / name).symlink_to((args.folder / name).resolve())
    raise SystemExit
files = {split: args.folder / 'annotations' / f'{split}.json' for split in ('train', 'val')}
contents = {split: json.loads(path.read_text('utf-8')) for split, path in files.items()}
counts = Counter(one['category_id'] for one in contents['train']['annotations'] if not one.get('iscrowd'))
classes = {id for id, _ in counts.most_common(args.classes)}
(args.out / 'annotations').mkdir(parents=True)
(args.out / 'images').symlink_to((args.folder / 'images').resolve())
for split, content in contents.items():
    objects = [one for one in content['annotations'] if one['category_id'] in classes]
    used = {one['image_id'] for one in objects}
    images = [image for image in content['images'] if image['id'] in used or not args.classes]
    if split in numbers:
        images = random.Random(0).sample(images, int(numbers[split]))
    chosen = {image['id'] for image in images}
    for one in objects if args.boxes else ():
        one.pop('segmentation', None)
    content['images'] = images
    content['annotations'] = [one for one in objects if one['image_id'] in chosen]
    content['categories'] = [one for one in content['categories'] if one['id'] in classes]
    (args.out / 'annotations' / f'{split}.json').write_text(json.dumps(content), 'utf-8')
    print(f'{split}: {len(images)} images, {len(content["annotations"])} objects')
