"""Datasets in YOLO and Pascal VOC format."""

import json
import shutil

import pytest
import yaml

from tokennorm.datasets.discovery import find_splits

NAMES = ['disk', 'square', 'triangle', 'star']


def with_pentagons(root):
    """A COCO folder with a pentagon in each box, which touches its sides, in place of run lengths."""
    for path in (root / 'annotations').iterdir():
        content = json.loads(path.read_text())
        for a in content['annotations']:
            x, y, w, h = a['bbox']
            corners = [(0.5, 0), (1, 0.4), (0.7, 1), (0.2, 1), (0, 0.5)]
            a['segmentation'] = [[v for i, j in corners for v in (x + i * w, y + j * h)]]
        path.write_text(json.dumps(content))
    return root


def images_and_objects(split):
    names = {category['id']: category['name'] for category in split.content['categories']}
    for image in split.content['images']:
        objects = [a for a in split.content['annotations'] if a['image_id'] == image['id']]
        yield image, [(names[a['category_id']], a) for a in objects]


def write_yolo(coco, root, with_polygons=False, images='images/{}', **extra):
    """The same dataset in YOLO's format; images without objects have no label file."""
    for split in find_splits(coco, ('train',)).values():
        folder = root / images.format(split.name)
        shutil.copytree(split.image_dir, folder)
        for image, objects in images_and_objects(split):
            width, height = image['width'], image['height']
            lines = []
            for name, a in objects:
                x, y, w, h = a['bbox']
                numbers = [(x + w / 2) / width, (y + h / 2) / height, w / width, h / height]
                if with_polygons:
                    numbers = [v / (width, height)[i % 2] for i, v in enumerate(a['segmentation'][0])]
                lines.append(' '.join(map(str, [NAMES.index(name), *numbers])))
            path = folder.parents[len(images.split('/')) - 1] / images.format(split.name).replace('images', 'labels')
            if lines:
                path.mkdir(parents=True, exist_ok=True)
                (path / image['file_name']).with_suffix('.txt').write_text('\n'.join(lines) + '\n')
    content = dict(train=images.format('train'), val=images.format('val'), names=NAMES) | extra
    (root / 'data.yaml').write_text(yaml.safe_dump(content))
    return root


def write_voc(coco, root, image_sets=True):
    for split in find_splits(coco, ('train',)).values():
        xml_dir = root / ('Annotations' if image_sets else split.name)
        image_dir = root / ('JPEGImages' if image_sets else split.name)
        for folder in (xml_dir, image_dir):
            folder.mkdir(parents=True, exist_ok=True)
        stems = []
        for image, objects in images_and_objects(split):
            stem = f'{split.name}_{image["file_name"].rpartition(".")[0]}'
            stems.append(stem)
            shutil.copy(split.image_dir / image['file_name'], image_dir / f'{stem}.jpg')
            nodes = ''
            for name, a in objects:
                x, y, w, h = a['bbox']
                corners = a['segmentation'][0]
                polygon = ''.join(
                    f'<{"xy"[i % 2]}{i // 2 + 1}>{v + 1}</{"xy"[i % 2]}{i // 2 + 1}>' for i, v in enumerate(corners)
                )
                nodes += (
                    f'<object><name>{name}</name><difficult>{a["iscrowd"]}</difficult><polygon>{polygon}</polygon>'
                    f'<bndbox><xmin>{x + 1}</xmin><ymin>{y + 1}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox>'
                    '</object>'
                )
            size = f'<size><width>{image["width"]}</width><height>{image["height"]}</height><depth>3</depth></size>'
            (xml_dir / f'{stem}.xml').write_text(
                f'<annotation><filename>{stem}.jpg</filename>{size}{nodes}</annotation>'
            )
        if image_sets:
            (root / 'ImageSets' / 'Main').mkdir(parents=True, exist_ok=True)
            (root / 'ImageSets' / 'Main' / f'{split.name}.txt').write_text('\n'.join(stems) + '\n')
    return root


def by_image(split):
    """Objects of each image: (class, box, polygon, crowd), without ids."""
    names = {category['id']: category['name'] for category in split.content['categories']}
    found = {}
    for image in split.content['images']:
        key = image['file_name'].rpartition('/')[2]
        found[key] = (
            (image['width'], image['height']),
            [
                (names[a['category_id']], a['bbox'], a.get('segmentation'), a['iscrowd'])
                for a in split.content['annotations']
                if a['image_id'] == image['id']
            ],
        )
    return found


def assert_same_objects(actual, expected, with_masks=True):
    actual, expected = by_image(actual), by_image(expected)
    assert set(actual) == set(expected)
    for name, (size, listed) in expected.items():
        assert actual[name][0] == size
        for (label, box, polygons, crowd), other in zip(listed, actual[name][1], strict=True):
            assert (other[0], other[3]) == (label, crowd)
            assert other[1] == pytest.approx(box, abs=0.01)
            if with_masks:
                assert len(other[2]) == 1
                assert other[2][0] == pytest.approx(polygons[0], abs=0.01)
