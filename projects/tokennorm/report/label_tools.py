"""Writes suspects for the programs in which people correct them: COCO for CVAT and FiftyOne, tasks of Label Studio."""

import filecmp
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import cv2
import numpy as np

from tokennorm.base.files import write_atomically
from tokennorm.base.messages import UserError, shorten, user_errors
from tokennorm.datasets.coco.entries import id_text
from tokennorm.datasets.coco.file_names import match_names
from tokennorm.datasets.coco.folder import read_coco_file
from tokennorm.datasets.contact_sheet import draw_annotations, tile
from tokennorm.datasets.image_files import read_image
from tokennorm.datasets.splits import CocoSplit

KINDS = 'missing', 'wrong class', 'wrong box', 'spurious'
ON_SHEET, COLUMNS = 24, 6  # suspects on the contact sheet


def write_suspects(folder: Path, split: CocoSplit, suspects: Sequence[Mapping[str, Any]], most: int) -> int:
    """Writes the images with the most suspicious annotations, and their annotations, and returns their number.

    Args:
        folder: Where `suspects.json`, `cvat_labels.json`, `label_studio.json`, `label_studio.xml`, `suspects.jpg` and
            `images` are written.
        split: The annotations.
        suspects: As `tokennorm.evaluation.suspects.as_rows` returns them, the most suspicious first.
        most: Number of images.
    """
    unique: dict[str, Mapping[str, Any]] = {}
    for one in suspects:  # a file that is listed several times has each of its suspects as often
        unique.setdefault(str([one[key] for key in _PLACE]), one)
    suspects = list(unique.values())
    files = list(dict.fromkeys(one['file'] for one in suspects))[:most]
    content = as_coco(split.content, [one for one in suspects if one['file'] in set(files)], files)
    for image in content['images']:
        image['file_name'] = _copied_name(image)
    copies = {
        folder / 'images' / image['file_name']: file for image, file in zip(content['images'], files, strict=True)
    }
    _remove_copies(folder, split, set(copies))
    for copy, file in copies.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(split.image_dir / file, copy)
    names = [one['name'] for one in content['categories']]
    for name, value in (
        ('suspects.json', content),
        ('cvat_labels.json', [dict(name=name, attributes=_CVAT) for name in names]),
        ('label_studio.json', label_studio_tasks(content)),
    ):
        write_atomically(folder / name, json.dumps(value, indent=1).encode())
    write_atomically(folder / 'label_studio.xml', label_studio_config(names).encode())
    drawn = [image for one in suspects[:ON_SHEET] if (image := draw_suspect(split, one)) is not None]
    if drawn:
        cv2.imwrite(str(folder / 'suspects.jpg'), tile(drawn, min(COLUMNS, len(drawn))))
    else:
        (folder / 'suspects.jpg').unlink(missing_ok=True)  # of an earlier call
    return len(files)


def merge_corrected(annotations: str | Path, corrected: str | Path) -> None:
    """Replaces the annotations of some images in a COCO file by those of another COCO file, which a label tool wrote.

    Images are matched by the names that `tokennorm audit` gave them, also where Label Studio has changed these, and
    classes by name. Ids may differ. The attributes of suspects are left out.

    Raises:
        UserError: for images and classes that the first file does not have, for annotations of none that are listed,
            and for files that are not COCO.
    """
    with user_errors(ValueError):
        old, new = (read_coco_file(Path(path)) for path in (annotations, corrected))
    for path, content in ((annotations, old), (corrected, new)):
        for kind, key in (('images', 'file_name'), ('categories', 'name')):
            wrong = [
                str(one) for one in content[kind] if not (isinstance(one.get(key), str) and one[key] and 'id' in one)
            ]
            if wrong:
                raise UserError(f'{path} has {kind} without an id or a valid {key}: {shorten(wrong, 3)}')
    known = {Path(_copied_name(image)): image for image in old['images']}
    files = match_names([image['file_name'] for image in new['images']], known)
    names = {one['name']: one['id'] for one in old['categories']}
    missing = [image['file_name'] for image in new['images'] if image['file_name'] not in files]
    missing += [name for one in new['categories'] if (name := one['name']) not in names]
    if missing:
        raise UserError(f'{corrected} has images or classes that {annotations} does not have: {shorten(missing, 3)}')
    images = {id_text(image['id']): known[files[image['file_name']]] for image in new['images']}
    classes = {id_text(one['id']): names[one['name']] for one in new['categories']}
    for key, listed in (('image_id', images), ('category_id', classes)):
        wrong = [id_text(one.get('id')) for one in new['annotations'] if id_text(one.get(key)) not in listed]
        if wrong:
            raise UserError(
                f'{corrected} has annotations whose {key} it does not list, with the ids {shorten(wrong, 3)}'
            )
    replaced = {image['file_name'] for image in images.values()}  # which may be listed several times
    ids = {id_text(image['id']) for image in old['images'] if image['file_name'] in replaced}
    kept = [one for one in old['annotations'] if id_text(one.get('image_id')) not in ids]
    first = max((one['id'] for one in old['annotations'] if type(one.get('id')) is int), default=0) + 1
    for i, one in enumerate(new['annotations'], first):
        image, category = images[id_text(one['image_id'])], classes[id_text(one['category_id'])]
        kept.append(_unmarked(one) | dict(id=i, image_id=image['id'], category_id=category))
    write_atomically(Path(annotations), json.dumps(old | dict(annotations=kept)).encode())


_PLACE = 'file', 'kind', 'annotated', 'box', 'detected', 'detected_box'


def _copied_name(image: Mapping[str, Any]) -> str:
    """The name of an image's copy, in the folder of copies."""
    file = str(image['file_name'])
    return f'{image["id"]}_{Path(file).name}' if os.path.isabs(file) or '..' in Path(file).parts else file


def _remove_copies(folder: Path, split: CocoSplit, kept: set[Path]) -> None:
    """Removes the images that an earlier call copied, as far as they are still the same."""
    if not (earlier := folder / 'suspects.json').is_file():
        return
    names = {one['file_name'] for one in json.loads(earlier.read_text('utf-8'))['images']}
    for image in split.content['images']:
        source, copy = split.image_dir / image['file_name'], folder / 'images' / _copied_name(image)
        if _copied_name(image) not in names or copy in kept or not (copy.is_file() and source.is_file()):
            continue
        if not copy.samefile(source) and filecmp.cmp(copy, source, shallow=False):
            copy.unlink()


_CVAT = [
    dict(name='suspect', input_type='select', mutable=False, values=['', *KINDS], default_value=''),
    dict(name='suspect_score', input_type='text', mutable=False, values=[''], default_value=''),
    dict(name='detected', input_type='text', mutable=False, values=[''], default_value=''),
]


_ATTRIBUTES = {one['name'] for one in _CVAT}


def _unmarked(one: Mapping[str, Any]) -> dict[str, Any]:
    """An annotation without the attributes of suspects."""
    marks = one.get('attributes')
    if not isinstance(marks, dict):
        return dict(one)
    return dict(one, attributes={key: value for key, value in marks.items() if key not in _ATTRIBUTES})


def as_coco(content: Mapping[str, Any], suspects: Sequence[Mapping[str, Any]], files: Sequence[str]) -> dict[str, Any]:
    """Returns COCO content of some images, whose suspects have attributes: kind, score and detected class.

    A missing object is an annotation of the detected class. A file that is listed several times is one image, with the
    objects of all. Attributes of earlier suspects are left out.
    """
    by_name = {one['file_name']: one for one in content['images']}
    images = [dict(by_name[file]) for file in files]
    chosen = {one['file_name']: one['id'] for one in images}
    ids = {one['id']: chosen[one['file_name']] for one in content['images'] if one['file_name'] in chosen}
    different: dict[str, dict[str, Any]] = {}
    for one in content['annotations']:
        if one['image_id'] in ids:
            one = _unmarked(one) | dict(image_id=ids[one['image_id']])
            different.setdefault(str({k: v for k, v in one.items() if k not in ('id', 'original_id')}), one)
    annotations = list(different.values())
    categories = {one['name']: one['id'] for one in content['categories']}
    by_place = {(one['image_id'], one['category_id'], *one['bbox']): one for one in annotations}
    new_id = max((one['id'] for one in content['annotations']), default=0)
    for suspect in suspects:
        if suspect['kind'] == 'missing':
            new_id += 1
            box = suspect['detected_box']
            one = dict(id=new_id, image_id=by_name[suspect['file']]['id'], bbox=box, area=box[2] * box[3], iscrowd=0)
            annotations.append(one | dict(category_id=categories[suspect['detected']], segmentation=[]))
            marked = annotations[-1]
        else:  # whose id may be that of a copy
            place = by_name[suspect['file']]['id'], categories[suspect['annotated']], *suspect['box']
            marked = by_place[place]
        score, detected = f'{suspect["score"]:.2f}', suspect['detected'] or ''
        own = attributes if isinstance(attributes := marked.get('attributes'), dict) else {}
        marked['attributes'] = own | dict(suspect=suspect['kind'], suspect_score=score, detected=detected)
    plain = [
        [{key: value for key, value in one.items() if key != 'original_id'} for one in some]
        for some in (images, annotations, content['categories'])
    ]
    return dict(zip(('images', 'annotations', 'categories'), plain, strict=True))


def label_studio_tasks(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a task per image with its annotations as predictions, which a person corrects. Masks are boxes.

    The path of an image is relative to the folder of local storage that has the folder `images`.
    """
    names = {one['id']: one['name'] for one in content['categories']}
    objects: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for one in content['annotations']:
        objects[one['image_id']].append(one)
    tasks = []
    for image in content['images']:
        size = dict(original_width=image['width'], original_height=image['height'])
        results, notes = list[dict[str, Any]](), list[str]()
        for one in objects[image['id']]:
            x, y, w, h = (100 * v / image[side] for v, side in zip(one['bbox'], ('width', 'height') * 2, strict=True))
            value = dict(x=x, y=y, width=w, height=h, rotation=0, rectanglelabels=[names[one['category_id']]])
            result = dict(id=str(one['id']), type='rectanglelabels', from_name='label', to_name='image', value=value)
            results.append(result | size)
            if note := _note(one, names):
                results[-1]['meta'] = dict(text=[note])
                notes.append(note)
        url = f'/data/local-files/?d=images/{quote(image["file_name"])}'
        tasks.append(
            dict(data=dict(image=url, suspects='; '.join(notes)), predictions=[dict(result=results, score=1.0)])
        )
    return tasks


def label_studio_config(names: Sequence[str]) -> str:
    """Returns the labeling interface of the tasks: the suspects of an image in words, the image, boxes."""
    labels = '\n'.join(f'    <Label value={quoteattr(name)}/>' for name in names)
    return f"""<View>
  <Header value="$suspects"/>
  <Image name="image" value="$image" zoom="true"/>
  <RectangleLabels name="label" toName="image">
{labels}
  </RectangleLabels>
</View>
"""


def _note(one: Mapping[str, Any], names: Mapping[Any, str]) -> str:
    """A suspect in words, such as 'wrong class 0.93: RBC, detected WBC'; '' for other objects."""
    marks = one.get('attributes')
    if not (isinstance(marks, dict) and marks.get('suspect')):
        return ''
    detected = f', detected {marks["detected"]}' if marks['detected'] else ''
    return f'{marks["suspect"]} {marks["suspect_score"]}: {names[one["category_id"]]}{detected}'


def draw_suspect(split: CocoSplit, suspect: Mapping[str, Any]) -> np.ndarray | None:
    """Draws a suspect's object and detection on its image, (H, W, 3) uint8 BGR; None if that cannot be read."""
    image = read_image(split.image_dir / suspect['file'])
    if image is None:
        return None
    parts = ('annotated', 'box'), ('detected', 'detected_box')
    texts = [f'{what} {suspect[what]}' for what, _ in parts]  # as two classes with colors of their own
    boxes = [dict(bbox=suspect[box], category_id=text) for (_, box), text in zip(parts, texts, strict=True)]
    caption = f'{suspect["kind"]} {suspect["score"]:.2f} {suspect["file"]}'
    shown = [one for one in boxes if one['bbox'] is not None]
    return draw_annotations(image, shown, dict(zip(texts, texts, strict=True)), caption)
