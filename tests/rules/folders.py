"""Small data sets, each as a function that writes it into a folder, which a case edits before."""

import json

import numpy as np
import yaml
from PIL import Image

SPLITS = {'train': range(4), 'val': range(4, 8)}  # the numbers of their images
XML = '<bndbox><xmin>11</xmin><ymin>11</ymin><xmax>30</xmax><ymax>30</ymax></bndbox>'  # 10, 10, 20, 20
SIZE = '<size><width>96</width><height>64</height></size>'


def image(path, number=0, size=(96, 64), **options):
    """Writes an image of noise, which differs by its number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 255, (size[1], size[0], 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path, compress_level=0, **options)  # noise has nothing to compress


def content(numbers):
    """Two objects per image with their outlines: a cat at (10, 10) and a dog at (40, 20), of 20 x 20 pixels."""
    images = [dict(id=i + 1, file_name=f'{n}.png', width=96, height=64) for i, n in enumerate(numbers)]
    annotations = [
        dict(
            id=2 * i + j + 1,
            image_id=i + 1,
            category_id=j + 1,
            bbox=[x, y, 20, 20],
            area=400,
            iscrowd=0,
            segmentation=[[x, y, x + 20, y, x + 20, y + 20, x, y + 20]],
        )
        for i in range(len(numbers))
        for j, (x, y) in enumerate([(10, 10), (40, 20)])
    ]
    return dict(images=images, annotations=annotations, categories=[dict(id=1, name='cat'), dict(id=2, name='dog')])


def coco(change=None, split='train', files=None):
    """COCO: `change` edits the content of a split, of each for None, and `files` the folder in the end."""

    def write(root):
        for name, numbers in SPLITS.items():
            entries = content(numbers)
            if change is not None and split in (name, None):
                change(entries)
            for n in numbers:
                image(root / name / f'{n}.png', n)
            (root / name / 'labels.json').write_text(json.dumps(entries))
        if files is not None:
            files(root)
        return root

    return write


def objects(*changes, masks=True, **others):
    """A change of COCO content: the first annotations get keys, all of them `others`; `masks=False` removes masks."""

    def change(entries):
        for one in entries['annotations']:
            one.update(others)
            if not masks:
                one['segmentation'] = []
        for one, keys in zip(entries['annotations'], changes, strict=False):
            one.update(keys)

    return change


def boxes(*first, masks=False, rest=None):
    """As `objects`: boxes of the first annotations, and of all others `rest`."""
    rest = {} if rest is None else dict(bbox=rest, area=rest[2] * rest[3])
    return objects(*(dict(bbox=box, area=box[2] * box[3]) for box in first), masks=masks, **rest)


def yolo(lines=('0 .3 .3 .2 .3', '1 .6 .6 .2 .3'), files=None, **data):
    """YOLO: the lines of each label file, entries of data.yaml, and `files` edits the folder in the end."""

    def write(root):
        for name, numbers in SPLITS.items():
            for n in numbers:
                image(root / 'images' / name / f'{n}.png', n)
                path = root / 'labels' / name / f'{n}.txt'
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text('\n'.join(lines) + '\n')
        text = dict(train='images/train', val='images/val', names=['cat', 'dog']) | data
        (root / 'data.yaml').write_text(yaml.safe_dump(text, sort_keys=False))
        if files is not None:
            files(root)
        return root

    return write


def voc(more='', box=XML, size='', files=None, lists=True):
    """Pascal VOC: elements of each object, its box, and the size of the image; `files` edits the folder in the end."""

    def write(root):
        for name, numbers in SPLITS.items():
            folders = ('JPEGImages', 'Annotations') if lists else (name, name)
            for n in numbers:
                image(root / folders[0] / f'{n}.png', n)
                path = root / folders[1] / f'{n}.xml'
                path.parent.mkdir(parents=True, exist_ok=True)
                objects = ''.join(f'<object><name>{one}</name>{more}{box}</object>' for one in ('cat', 'dog'))
                path.write_text(f'<annotation>{size}{objects}</annotation>')
            if lists:
                (root / 'ImageSets' / 'Main').mkdir(parents=True, exist_ok=True)
                (root / 'ImageSets' / 'Main' / f'{name}.txt').write_text(''.join(f'{n}\n' for n in numbers))
        if files is not None:
            files(root)
        return root

    return write


def cvat(boxes='<box label="cat" xtl="10" ytl="10" xbr="30" ybr="30" occluded="0" z_order="0"/>', subsets=()):
    """CVAT for images: shapes of each image; `subsets` are those of the images of one file of all splits."""

    def entry(n, more=''):
        return f'<image id="{n}" name="{n}.png" width="96" height="64" {more}>{boxes}</image>'

    def write(root):
        for name, numbers in SPLITS.items():
            for n in numbers:
                image(root / name / f'{n}.png', n)
            text = ''.join(map(entry, numbers))
            if not subsets:
                (root / name / 'annotations.xml').write_text(f'<annotations>{text}</annotations>')
        if subsets:
            text = ''.join(entry(n, f'subset="{subset}"') for n, subset in enumerate(subsets))
            (root / 'annotations.xml').write_text(f'<annotations>{text}</annotations>')
        return root

    return write


def text(path, content):
    """A change of a folder: the text of a file."""

    def write(root):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)

    return write


def steps(*changes):
    """Several changes, one after another."""
    return lambda value: [change(value) for change in changes]
