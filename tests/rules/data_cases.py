"""For each rule about data: inputs that fire it, and correct, unusual ones that stay quiet."""

from typing import NamedTuple

import numpy as np
from PIL import Image
from pycocotools import mask as run_lengths

from tests.rules.folders import SIZE, boxes, coco, content, cvat, image, objects, steps, text, voc, yolo

BOX = '0 .3 .3 .2 .3'
CORNERS = '0 .3 .2 .5 .2 .5 .5 .3 .5'


class Case(NamedTuple):
    """Functions that write a data set into a folder.

    Of rules that change data `as_written` returns whether splits are as the files are. `allow` has the rules that must
    be allowed for this one to fire.
    """

    fires: list
    quiet: list
    as_written: object = None
    allow: tuple = ()


def first(splits, key='bbox'):
    return splits['train'].content['annotations'][0][key]


def count(splits, key='annotations'):
    return len(splits['train'].content[key])


def has_repeated(splits):
    found = [(one['image_id'], one['category_id'], *one['bbox']) for one in splits['train'].content['annotations']]
    return len(set(found)) < len(found)


def names(splits):
    return [one['name'] for one in splits['train'].content['categories']]


# ---- changes of COCO content ----


def drop(kind, key):
    return lambda c: c[kind][0].pop(key)


def entry(kind, index=0, **keys):
    return lambda c: c[kind][index].update(keys)


def all_of(kind, **keys):
    return lambda c: [one.update(keys) for one in c[kind]]


def empty(*kinds):
    return lambda c: [c[kind].clear() for kind in kinds]


def crowd_masks(some):
    """Run lengths of the objects, the first ones marked as crowds."""

    def change(c):
        for i, one in enumerate(c['annotations']):
            x, y, w, h = one['bbox']
            mask = np.zeros((64, 96), np.uint8, order='F')
            mask[y : y + h, x : x + w] = 1
            counts = run_lengths.encode(mask)['counts'].decode()
            one.update(segmentation=dict(size=[64, 96], counts=counts), iscrowd=int(i < some))

    return change


def one_crowd_of_many(c):
    """As COCO has: 1 of 40 annotations."""
    first = c['annotations'][0]
    c['annotations'] += [dict(first, id=50 + i, bbox=[10, 10 + i / 100, 20, 20]) for i in range(32)]
    first.update(iscrowd=1, segmentation=dict(size=[64, 96], counts=[970, 5, 5169]))


def by_rows(c):
    crowd_masks(0)(c)
    for one in c['annotations']:
        mask = run_lengths.decode(one['segmentation'])
        turned = np.asfortranarray(mask.T.reshape(96, 64))
        one['segmentation']['counts'] = run_lengths.encode(turned)['counts'].decode()


def swapped(c):
    for one in c['annotations']:
        (polygon,) = one['segmentation']
        one['segmentation'] = [np.reshape(polygon, (-1, 2))[:, ::-1].ravel().tolist()]


def groups(supercategory='things', first_id=0):
    """Roboflow's group of all classes."""

    def change(c):
        for one in c['categories']:
            one['supercategory'] = supercategory
        c['categories'].insert(0, dict(id=first_id, name='things', supercategory='none'))

    return change


def second_entries(differ):
    """Each file a second time, with the same objects or another one."""

    def change(c):
        for one in content(range(4))['images']:
            c['images'].append(dict(one, id=one['id'] + 10))
        for one in content(range(4))['annotations']:
            box = [60, 30, 20, 20] if differ else one['bbox']
            c['annotations'].append(dict(one, id=one['id'] + 50, image_id=one['image_id'] + 10, bbox=box))

    return change


def pages(number):
    """The first image as a TIFF file of so many pages."""

    def write(root):
        first, *others = (Image.effect_noise((96, 64), 40 + i) for i in range(number))
        first.save(root / 'train/0.tif', save_all=True, append_images=others)
        (root / 'train/0.png').unlink()

    return write


def renamed(change):
    return lambda c: [one.update(file_name=change(one['file_name'])) for one in c['images']]


def with_id(kind, index, value):
    return lambda c: c[kind][index].update(id=value)


def rename_class(name, index=1):
    return lambda c: c['categories'][index].update(name=name)


def one_class_only(c):
    c['annotations'] = [one for one in c['annotations'] if one['category_id'] == 1]


def shift_categories(by, listed=0):
    def change(c):
        for one in c['annotations']:
            one['category_id'] += by
        for one in c['categories']:
            one['id'] += listed

    return change


# ---- changes of folders ----


def remove(*paths):
    return lambda root: [(root / path).unlink() for path in paths]


def copy(old, new):
    return lambda root: (root / new).write_bytes((root / old).read_bytes())


def folder(name, numbers=range(4)):
    return lambda root: [image(root / name / f'{n}.png', n + 100) for n in numbers]


def lists(times, split='train'):
    """A list of the images, each several times."""
    lines = ''.join(f'./images/{split}/{n}.png\n' for n in (range(4) if split == 'train' else range(4, 8)))
    return text(f'{split}.txt', lines * times)


def turned(orientation, name='train/0.png', size=(96, 64)):
    from PIL import Image

    def change(root):
        exif = Image.Exif()
        exif[0x0112] = orientation
        image(root / name, 0, size, exif=exif)

    return change


def unnamed(root):
    path = root / 'Annotations' / '0.xml'
    path.write_text(path.read_text().replace('<name>cat</name>', '<name> </name>'))


def files_only(*changes):
    return lambda root: [change(root) for change in changes] and root


AMODAL = [60, 10, 70, 60]  # beyond the right and lower border
AROUND = [60, 10, 130, 10, 130, 70, 60, 70]  # its outline
POLYLINE = '<polyline label="cat" points="1,1;5,5" occluded="0" z_order="0"/>'
RECTANGLE = '<box label="cat" xtl="20" ytl="30" xbr="60" ybr="50" {} occluded="0" z_order="0"/>'
ROTATION = '<attributes><attribute><name>rotation</name><value>90.0</value></attribute></attributes>'
WIDE = '<bndbox><xmin>11</xmin><ymin>21</ymin><xmax>50</xmax><ymax>40</ymax></bndbox>'
AT_ZERO = '<bndbox><xmin>0</xmin><ymin>0</ymin><xmax>30</xmax><ymax>30</ymax></bndbox>'
BEYOND = '<bndbox><xmin>61</xmin><ymin>11</ymin><xmax>140</xmax><ymax>80</ymax></bndbox>'
SWITCHED = dict(attributes=dict(occluded=False, rotation=90.0))

CASES = {
    'unreadable-data': Case(
        [
            coco(files=text('train/labels.json', '{')),
            yolo(names='cat'),
            yolo(nc={1: 2}),
            yolo(files=text('data.yaml', 'names: &i [*i]\ntrain: *i\n')),
            voc(files=text('Annotations/0.xml', '<annotation><object>')),
            voc(size='<size><width>wide</width><height>64</height></size>'),
            coco(
                files=steps(
                    copy('train/labels.json', 'train/instances.json'), copy('train/labels.json', 'train/train.json')
                )
            ),
        ],
        [coco(files=text('train/statistics.md', '{')), coco(files=text('notes.yaml', 'a: ['))],
    ),
    'unread-format': Case(
        [files_only(text('train/0.json', '{"shapes": [], "imagePath": "0.png"}'))],
        [coco(lambda c: c.update(shapes=[], imagePath='')), yolo(files=text('labels/x.json', '{"shapes": []}'))],
    ),
    'missing-split': Case(
        [coco(files=remove('val/labels.json')), yolo(val=None), files_only(folder('train'))],
        [
            coco(files=lambda root: (root / 'val').rename(root / 'VALIDATION')),
            voc(files=text('ImageSets/Main/test.txt', '98\n99\n')),
        ],
    ),
    'unread-files': Case(
        [coco(files=text('train/x.heic', ''))],
        [coco(files=text('train/notes.txt', 'x')), coco(files=text('train/.hidden.heic', ''))],
    ),
    'unread-shape': Case(
        [cvat(RECTANGLE.format('') + POLYLINE)],
        [
            cvat(),
            cvat(RECTANGLE.format('') + '<tag label="day" source="manual"/>'),
            cvat('<polygon label="cat" points="10,10;30,10;30,30" occluded="0" z_order="0"/>'),
        ],
    ),
    'ambiguous-folder': Case(
        [
            coco(
                files=steps(
                    folder('train/masks'), folder('train/images'), remove(*(f'train/{n}.png' for n in range(4)))
                )
            )
        ],
        [coco(files=folder('train/masks')), coco(files=folder('masks', range(20, 24)))],
    ),
    'renamed-file': Case(
        [
            coco(renamed(lambda name: rf'C:\export\{name}'), None),
            coco(renamed(lambda name: f'/data/local-files/?d=x%20y/{name}'), None),
            coco(renamed(str.upper), None),
        ],
        [coco(renamed(lambda name: f'./{name}')), coco(renamed(lambda name: f'../train/{name}'))],
        lambda splits: (
            splits['train'].content['images'][0]['file_name'] in (r'C:\export\0.png', '0.PNG')
            or 'local-files' in splits['train'].content['images'][0]['file_name']
        ),
    ),
    'listed-image-missing': Case(
        [
            yolo(train='train.txt', files=steps(lists(1), remove('images/train/0.png', 'labels/train/0.txt'))),
            voc(files=remove('JPEGImages/0.png', 'Annotations/0.xml')),
        ],
        [
            yolo(train='train.txt', files=lists(1)),
            voc(files=text('ImageSets/Main/cat_train.txt', '99 1\n')),
            voc(files=text('ImageSets/Main/test.txt', '98\n99\n')),
        ],
    ),
    'unlisted-image': Case(
        [
            coco(
                lambda c: (
                    c['images'].pop(),
                    c['annotations'][-2:].clear(),
                    c['annotations'].__delitem__(slice(-2, None)),
                )
            ),
            voc(lists=False, files=remove('train/0.xml')),
            cvat(subsets=['Train'] * 3 + ['Extra'] + ['Validation'] * 4),
        ],
        [
            coco(files=text('train/mask.jpg', '')),
            coco(files=folder('train/others')),
            coco(files=folder('more')),
            voc(lists=False),
            voc(files=remove('Annotations/0.xml')),
            yolo(train='train.txt', files=steps(lists(1), folder('images/train', [9]))),
            cvat(subsets=['train'] * 4 + ['VAL'] * 4),
        ],
    ),
    'invalid-label': Case(
        [
            yolo(['0 .3 .3 .2']),
            yolo(['cat .3 .3 .2 .3']),
            yolo(['0 0,3 0,3 0,2 0,3']),
            yolo([f'{BOX} 1.57']),
            yolo([BOX + ' .5 .5 2 .9 .9 1 1'], kpt_shape=[3, 2]),
            voc(box=''),
            voc(box=WIDE.replace('50', '5')),
            voc(box=WIDE * 2),
            voc(box=WIDE.replace('50', 'x')),
            voc(files=unnamed),
        ],
        [yolo([f' {BOX}  ', '', BOX]), yolo(['0.0 3e-1 .3 .2 .3']), yolo([BOX + ' .5 .5 2 .9 .9 1'], kpt_shape=[2, 3])],
    ),
    'label-outside-image': Case(
        [
            yolo(['0 1.05 .5 .1 .1']),
            yolo(['0 .5 .5 .1 1.02']),
            yolo(['0 nan .5 .1 .1']),
            yolo(['0 -.1 .5 .5 .5 .5 .9']),
        ],
        [yolo(['0 1.005 .5 .1 .1']), yolo(['0 1 1 1 1']), yolo([f'0 -0.001{CORNERS[4:]}'])],
    ),
    'unknown-class': Case(
        [yolo(['2 .3 .3 .2 .3']), yolo(['-1 .3 .3 .2 .3']), yolo(['0.5 .3 .3 .2 .3'])],
        [yolo(['1 .3 .3 .2 .3']), yolo(['1.0 .3 .3 .2 .3'])],
    ),
    'class-count': Case([yolo(nc=3)], [yolo(nc='2'), yolo(nc=2), yolo(nc=0)]),
    'classes-from-1': Case(
        [yolo(['1 .3 .3 .2 .3', '2 .6 .6 .2 .3'], names=['cat', 'dog', 'cow'])],
        [
            yolo([BOX, '1 .6 .3 .2 .3', '2 .6 .6 .2 .3'], names=['cat', 'dog', 'cow']),
            yolo(['1 .3 .3 .2 .3', '2 .6 .6 .2 .3'], names=['background', 'dog', 'cow']),
            yolo(['1 .3 .3 .2 .3']),
            yolo(['1 .3 .3 .2 .3'], names=['cat', 'dog', 'cow']),
        ],
    ),
    'four-corners': Case(
        [yolo([CORNERS])],
        [
            yolo([CORNERS, '0 .3 .2 .5 .2 .5 .5 .4 .6 .3 .5']),
            yolo(['0 .3 .2 .5 .2 .5 .5']),
            yolo([CORNERS], task='obb'),
        ],
    ),
    'image-without-label': Case(
        [yolo(files=remove('labels/train/0.txt')), voc(files=remove('Annotations/0.xml'))],
        [yolo(files=text('labels/train/0.txt', '')), voc(files=text('Annotations/0.xml', '<annotation/>'))],
    ),
    'label-without-image': Case(
        [yolo(files=remove('images/train/0.png')), voc(files=remove('JPEGImages/0.png'))],
        [
            yolo(files=text('labels/train/notes.txt', 'see 0.png')),
            yolo(files=text('labels/notes.txt', BOX)),
            voc(files=text('Annotations/x.xml', '<annotation/>')),
            voc(files=remove('Annotations/0.xml')),
        ],
    ),
    'pixels-from-0': Case(
        [voc(box=AT_ZERO), voc(box=AT_ZERO.replace('>0<', '>0.4<'))],
        [voc(), voc(box=AT_ZERO.replace('>0<', '>1<'))],
        lambda splits: first(splits)[0] < 0,
    ),
    'invalid-entry': Case(
        [
            coco(lambda c: c['annotations'][0].update(bbox=[1, 2, float('nan'), 4])),
            coco(lambda c: c['annotations'][0].update(bbox=None, segmentation=None)),
            coco(entry('annotations', bbox=[1, 2, 3])),
            coco(entry('annotations', bbox_mode=0)),
            coco(entry('annotations', area='400')),
            coco(entry('images', height=0, file_name='gone.jpg')),
            coco(drop('images', 'file_name')),
            coco(drop('categories', 'name'), None),
        ],
        [
            coco(entry('annotations', bbox_mode=1)),
            coco(entry('annotations', bbox=[10.5, 10.0, 19, 20])),
            coco(entry('images', width=96.0)),
            coco(drop('annotations', 'area')),
        ],
    ),
    'duplicate-entry': Case(
        [
            coco(with_id('images', 1, 1)),
            coco(with_id('images', 1, '1')),
            coco(with_id('categories', 1, 1)),
            coco(rename_class('cat'), None),
        ],
        [
            coco(with_id('annotations', 1, 1)),
            coco(lambda c: [one.update(id=str(one['id'])) for one in c['images']]),
            coco(with_id('categories', 1, 7)),
            coco(with_id('images', 0, 1)),
            coco(rename_class('Cat'), None),
            coco(entry('categories', supercategory='dog')),
        ],
    ),
    'no-objects': Case(
        [
            coco(empty('annotations')),
            coco(empty('images', 'annotations')),
            coco(objects(bbox=[0.1, 0.1, 0.2, 0.2], area=1, segmentation=[])),
            coco(all_of('annotations', iscrowd=1)),
            yolo(['']),
            voc(files=lambda root: [path.write_text('<annotation/>') for path in root.rglob('*.xml')]),
        ],
        [coco(lambda c: c['annotations'].__delitem__(slice(1, None))), yolo(files=text('labels/train/0.txt', ''))],
    ),
    'orphan-image-id': Case(
        [coco(entry('annotations', image_id=99))],
        [coco(entry('annotations', image_id='1')), coco(entry('annotations', image_id=1.0))],
    ),
    'orphan-category-id': Case(
        [coco(entry('annotations', category_id=99))],
        [coco(entry('annotations', category_id='1')), coco(shift_categories(6, 6), None)],
    ),
    'shifted-category-ids': Case(
        [coco(shift_categories(-1)), coco(shift_categories(1))],
        [coco(shift_categories(-1, -1), None), coco(entry('annotations', category_id=3))],
    ),
    'degenerate-bbox': Case(
        [
            coco(boxes([5, 5, 0, 9])),
            coco(boxes([5, 5, 0.9, 9])),
            coco(objects(dict(bbox=[5, 5, -3, 9]))),
            yolo(['0 .5 .5 .005 .3']),
        ],
        [coco(boxes([5, 5, 1, 9])), coco(entry('annotations', area=0)), coco(boxes([0, 0, 96, 64]))],
    ),
    'bbox-outside-image': Case(
        [coco(boxes([96, 5, 9, 9])), coco(boxes([-9, 5, 9, 9])), coco(boxes([5, 64, 9, 9]))],
        [coco(boxes([95, 5, 9, 9])), coco(boxes([0, 0, 96, 64])), coco(boxes([-8, 5, 9, 9]))],
    ),
    'bbox-out-of-bounds': Case(
        [
            coco(boxes([90, 5, 9, 9])),
            coco(steps(boxes(rest=AMODAL), objects(segmentation=[AROUND])), 'val'),
            coco(boxes([-20, 12, 70, 48], rest=AMODAL)),
            voc(box=BEYOND),
            cvat(RECTANGLE.format('').replace('"60"', '"140"')),
            yolo(['0 .9 .5 .4 .5']),
        ],
        [coco(boxes([86, 5, 11, 9])), coco(boxes([0, 0, 96, 64])), yolo(['0 .9 .5 .21 .5'])],
    ),
    'bbox-as-corners': Case(
        [coco(boxes(rest=[60, 10, 90, 60])), coco(boxes([70, 20, 96, 64], rest=[50, 30, 80, 50]))],
        [
            coco(steps(boxes(rest=AMODAL), objects(segmentation=[AROUND]))),
            coco(boxes([-20, 12, 70, 48], rest=AMODAL)),
            coco(boxes([60, 10, 90, 60])),
            voc(box=BEYOND),
            cvat(RECTANGLE.format('').replace('"60"', '"140"')),
            yolo(['0 .8 .7 .6 .9']),
        ],
    ),
    'many-crowds': Case(
        [
            coco(objects(*[dict(iscrowd=1)] * 4)),
            coco(crowd_masks(1)),
            voc(
                '<difficult>1</difficult>',
                files=lambda root: text(
                    'Annotations/0.xml', f'<annotation><object><name>cat</name>{WIDE}</object></annotation>'
                )(root),
            ),
        ],
        [
            coco(one_crowd_of_many),
            coco(objects(*[dict(iscrowd=1)] * 2)),
            coco(crowd_masks(0)),
            voc('<difficult>0</difficult>'),
        ],
    ),
    'repeated-object': Case(
        [coco(lambda c: c['annotations'].append(dict(c['annotations'][0], id=50))), yolo([BOX, BOX])],
        [
            yolo([BOX, '1' + BOX[1:]]),
            coco(lambda c: c['annotations'].append(dict(c['annotations'][0], id=50, category_id=2))),
            coco(
                lambda c: c['annotations'].append(
                    dict(c['annotations'][0], id=50, segmentation=[[10, 10, 30, 10, 30, 30]])
                )
            ),
        ],
        has_repeated,
    ),
    'rotated-box': Case(
        [
            coco(objects(dict(bbox=[10, 10, 40, 20], area=800, **SWITCHED), masks=False)),
            voc(f'<occluded>0</occluded>{ROTATION}', WIDE),
            cvat(RECTANGLE.format('rotation="90.0"')),
        ],
        [
            coco(
                objects(dict(bbox=[20, 20, 40, 20], area=800, attributes=dict(rotation=90, barcode='x')), masks=False)
            ),
            coco(objects(dict(attributes=dict(occluded=True, rotation=0.0)))),
            coco(objects(dict(attributes=dict(occluded=False, rotation=30)))),  # its mask is turned
            voc(ROTATION, WIDE),
            cvat(RECTANGLE.format('rotation="0.0"')),
        ],
        lambda splits: first(splits)[2:] == [40, 20] or first(splits) == [20, 30, 40, 20],
    ),
    'crowd-as-object': Case(
        [
            coco(steps(crowd_masks(1), entry('annotations', attributes=dict(occluded=False)))),
            coco(steps(all_of('categories', supercategory='common-objects'), entry('annotations', iscrowd=1))),
        ],
        [
            coco(crowd_masks(1)),
            coco(objects(dict(iscrowd=1, attributes=dict(occluded=False)))),
            coco(steps(entry('categories', supercategory='common-objects'), entry('annotations', iscrowd=1))),
            coco(steps(all_of('categories', supercategory=['common-objects']), entry('annotations', iscrowd=1))),
        ],
        lambda splits: first(splits, 'iscrowd') == 1,
    ),
    'no-mask': Case(
        [coco(drop('annotations', 'segmentation')), coco(objects(masks=False)), yolo()],
        [coco(), yolo([CORNERS]), coco(crowd_masks(0))],
    ),
    'invalid-mask': Case(
        [
            coco(entry('annotations', segmentation='[[1, 2, 3, 4, 5, 6]]')),
            coco(entry('annotations', segmentation=[[1, 2, 3, 4, 5, float('nan')]])),
            coco(entry('annotations', segmentation=[[1, 2, 3, 4, 5, None]])),
            coco(entry('annotations', segmentation=[[[10, 10], [30, 10], [30, 30], [10, 30]]])),
            coco(entry('annotations', segmentation=dict(size=[3, 5], counts='0'))),
            coco(entry('annotations', segmentation=dict(size=[64, 96], counts=[9]))),
            coco(entry('annotations', segmentation=[[1, 2, 3, 4, 5, 200]])),
            coco(entry('annotations', segmentation=[[1, 2, 3, 4, 5, 10**400]])),
        ],
        [
            coco(entry('annotations', segmentation=[[10, 10.5, 30, 10, 30, 30]])),
            coco(crowd_masks(2)),
            coco(entry('annotations', segmentation=dict(size=[64, 96], counts=[970, 5, 5169]))),
            coco(entry('annotations', bbox=[60, 10, 70, 50], area=3500, segmentation=[[60, 10, 130, 10, 130, 60]])),
        ],
    ),
    'short-polygon': Case(
        [
            coco(entry('annotations', segmentation=[[10, 10, 30, 10, 30, 30], [1, 2, 3, 4]])),
            coco(entry('annotations', segmentation=[[1, 2, 3, 4]])),
            coco(entry('annotations', segmentation=[[10, 10, 30, 10, 30, 30], [1, 2, 3, 4, 5, 6, 7]])),
        ],
        [coco(entry('annotations', segmentation=[[10, 10, 30, 10, 30, 30]])), coco(objects(masks=False))],
        lambda splits: any(len(piece) in (4, 7) for piece in first(splits, 'segmentation')),
    ),
    'mask-outside-bbox': Case(
        [
            coco(steps(boxes(rest=[50, 30, 20, 20]), objects(segmentation=[[10, 10, 70, 10, 70, 60, 10, 60]]))),
            coco(entry('annotations', segmentation=[[50, 40, 60, 40, 60, 50]])),
            coco(objects(segmentation=[[0.1, 0.1, 0.6, 0.1, 0.6, 0.6]])),
            coco(steps(objects(bbox=[60, 5, 20, 20], area=400), by_rows)),
            coco(swapped),
        ],
        [
            coco(entry('annotations', segmentation=[[8, 8, 37, 8, 37, 37]])),
            coco(entry('annotations', segmentation=[[12, 12, 14, 12, 14, 14]])),
            coco(crowd_masks(0)),
        ],
    ),
    'unreadable-image': Case(
        [
            coco(files=remove('train/0.png')),
            coco(files=text('train/0.png', '')),
            coco(files=text('train/0.png', 'version https://git-lfs.github.com/spec/v1\n')),
            coco(files=lambda root: (root / 'train/0.png').write_bytes((root / 'train/0.png').read_bytes()[:-99])),
            yolo(files=text('images/train/0.png', 'x')),
        ],
        [
            coco(
                files=lambda root: (root / 'train/0.png').write_bytes((root / 'train/0.png').read_bytes() + b'x' * 40)
            ),
            coco(files=text('train/extra.png.part', 'x')),
        ],
    ),
    'image-size': Case(
        [coco(entry('images', width=95)), coco(files=turned(6)), voc(size=SIZE.replace('96', '95'))],
        [
            coco(files=turned(6, size=(64, 96))),
            coco(entry('images', width=96.0)),
            coco(entry('images', width=-1, height=None)),
            coco(drop('images', 'width')),
            coco(files=turned(3)),
            voc(size=SIZE),
            voc(size=SIZE.replace('96', '0')),
            voc(size='<size/>'),
        ],
    ),
    'partly-read-image': Case(
        [coco(entry('images', file_name='0.tif'), files=pages(2))],
        [coco(entry('images', file_name='0.tif'), files=pages(1)), coco()],
    ),
    'exif-rotation': Case(
        [coco(files=turned(6, size=(64, 96))), coco(files=turned(3))], [coco(files=turned(1)), coco(files=turned(0))]
    ),
    'narrow-image': Case(
        [
            coco(
                lambda c: c['images'].append(dict(id=9, file_name='thin.png', width=300, height=2)),
                files=lambda root: image(root / 'train/thin.png', 9, (300, 2)),
            )
        ],
        [
            coco(
                lambda c: c['images'].append(dict(id=9, file_name='thin.png', width=300, height=3)),
                files=lambda root: image(root / 'train/thin.png', 9, (300, 3)),
            ),
            coco(),
        ],
    ),
    'repeated-image': Case(
        [
            coco(second_entries(differ=True)),
            coco(steps(second_entries(differ=True), lambda c: c['images'][-1].update(file_name='./3.png'))),
        ],
        [coco(second_entries(differ=False)), coco(), yolo(train='train.txt', files=lists(3))],
    ),
    'oversampled-image': Case(
        [coco(second_entries(differ=False)), yolo(train='train.txt', files=lists(3))],
        [yolo(train='train.txt', files=lists(1)), coco(second_entries(differ=True))],
    ),
    'shared-images': Case(
        [coco(files=copy('train/0.png', 'val/4.png'))],
        [coco(files=copy('train/0.png', 'val/other.png')), coco(files=copy('train/0.png', 'x.png'))],
    ),
    'same-content': Case(
        [coco(files=copy('train/0.png', 'train/1.png'))],
        [
            coco(second_entries(differ=False)),
            yolo(train='train.txt', files=lists(3)),
            coco(files=copy('train/0.png', 'val/4.png')),
        ],
    ),
    'category-group': Case(
        [
            coco(groups(), None),
            coco(
                steps(
                    groups(),
                    lambda c: c['categories'][0].update(name='cat'),
                    all_of('categories', supercategory='cat'),
                    lambda c: c['categories'][0].update(supercategory='none'),
                ),
                None,
            ),
        ],
        [
            coco(groups(first_id=3), None),
            coco(groups('others'), None),
            coco(steps(groups(), entry('annotations', category_id=0)), None),
            coco(all_of('categories', supercategory='cat'), None),
        ],
        lambda splits: len(names(splits)) == 3,
    ),
    'zero-instance-category': Case(
        [coco(one_class_only), yolo(names=['cat', 'dog', 'cow'])],
        [coco(lambda c: c['annotations'].__delitem__(slice(2, None))), coco()],
    ),
    'similar-classes': Case(
        [coco(rename_class('Cat '), None)],
        [coco(rename_class('cat 2'), None), coco(rename_class('cats'), None)],
    ),
    'other-classes': Case(
        [
            coco(rename_class(' DOG'), 'val'),
            coco(steps(rename_class('moon'), lambda c: c['categories'].append(dict(id=9, name='cow'))), 'val'),
        ],
        [
            coco(rename_class('moon'), 'val'),
            coco(lambda c: c['categories'].reverse(), 'val'),
            coco(steps(one_class_only, lambda c: c['categories'].pop()), 'val'),
        ],
    ),
    'extra-classes': Case(
        [coco(lambda c: c['categories'].append(dict(id=9, name='moon')), 'val')],
        [coco(lambda c: c['categories'].append(dict(id=9, name='moon')), None), coco(rename_class('moon'), 'val')],
    ),
    'unlearned-classes': Case([coco(one_class_only)], [coco(one_class_only, None), coco(one_class_only, 'val')]),
}
