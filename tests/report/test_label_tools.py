"""Suspects as programs read them: COCO with attributes, tasks of Label Studio, and the programs themselves."""

import json
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import cv2
import pytest

from tests.helpers.detections import CLASSES
from tokennorm.base.messages import UserError
from tokennorm.datasets.coco.file_names import match_names
from tokennorm.datasets.splits import CocoSplit
from tokennorm.report.label_tools import KINDS, as_coco, label_studio_tasks, merge_corrected, write_suspects


@pytest.fixture
def written(report, tmp_path):
    """The folder of the five most suspicious of eight images, the suspects, and the annotations."""
    folder, truth, _, numbers = report
    split = CocoSplit('val', folder / 'val.json', folder, truth)
    assert write_suspects(tmp_path / 'suspects', split, numbers['suspects'], 5) == 5
    return tmp_path / 'suspects', numbers['suspects'], truth


def marks(one):
    return {key: value for key, value in (one.get('attributes') or {}).items() if value}


def expected_marks(suspects, files):
    """Kind, score and both classes of each suspect in some images."""
    return Counter(
        (one['file'], one['kind'], f'{one["score"]:.2f}', one['annotated'] or one['detected'], one['detected'] or '')
        for one in suspects
        if one['file'] in files
    )


def test_the_coco_file_has_the_worst_images_with_all_of_their_annotations(written):
    folder, suspects, truth = written
    content = json.loads((folder / 'suspects.json').read_text())
    files = [image['file_name'] for image in content['images']]
    assert files == list(dict.fromkeys(one['file'] for one in suspects))[:5]
    assert all((folder / 'images' / file).is_file() for file in files)
    ids = {image['id']: image['file_name'] for image in content['images']}
    before = [one for one in truth['annotations'] if one['image_id'] in ids]
    new = [one for one in content['annotations'] if marks(one).get('suspect') == 'missing']
    rest = [{key: value for key, value in one.items() if key != 'attributes'} for one in content['annotations']]
    assert [one for one in rest if one['id'] in {a['id'] for a in before}] == before
    assert len(rest) == len(before) + len(new) == len({one['id'] for one in rest})
    found = Counter(
        (ids[one['image_id']], *(one['attributes'][key] for key in ('suspect', 'suspect_score')))
        + (CLASSES[one['category_id']], one['attributes']['detected'])
        for one in content['annotations']
        if marks(one)
    )
    assert found == expected_marks(suspects, files)
    assert {kind for _, kind, *_ in found} == set(KINDS)


def test_a_sheet_of_suspects_and_none_without(written, report, tmp_path):
    folder, *_ = written
    assert cv2.imread(str(folder / 'suspects.jpg')).shape[1] > 6 * 400
    source, truth, _, _ = report
    assert write_suspects(tmp_path / 'none', CocoSplit('val', source / 'val.json', source, truth), [], 5) == 0
    assert json.loads((tmp_path / 'none' / 'suspects.json').read_text())['images'] == []
    assert json.loads((tmp_path / 'none' / 'label_studio.json').read_text()) == []
    assert not (tmp_path / 'none' / 'suspects.jpg').exists()


def test_a_second_call_replaces_the_images_of_the_first(written, report):
    """Copies of the first call go, other files and copies that a person changed stay."""
    folder, suspects, truth = written
    source = report[0]
    before = sorted(path.name for path in (folder / 'images').iterdir())
    assert len(before) == 5
    worst = suspects[0]['file']
    changed = next(name for name in before if name != worst)
    for name in (changed, 'other.jpg'):
        (folder / 'images' / name).write_bytes(b'of a person')
    split = CocoSplit('val', source / 'val.json', source, truth)
    assert write_suspects(folder, split, suspects, 1) == 1
    assert sorted(path.name for path in (folder / 'images').iterdir()) == sorted({worst, changed, 'other.jpg'})
    assert write_suspects(folder, split, [], 1) == 0
    assert sorted(path.name for path in (folder / 'images').iterdir()) == sorted({changed, 'other.jpg'})
    assert not (folder / 'suspects.jpg').exists()


def test_a_file_listed_twice_is_written_once(written, report):
    folder, suspects, truth = written
    content = json.loads((folder / 'suspects.json').read_text())
    images = [one | dict(id=one['id'] + 100) for one in truth['images']]
    objects = [one | dict(id=one['id'] + 10000, image_id=one['image_id'] + 100) for one in truth['annotations']]
    twice = truth | dict(images=truth['images'] + images, annotations=truth['annotations'] + objects)
    both = [row for one in suspects for row in (one, one | dict(id=one['id'] and one['id'] + 10000))]
    split = CocoSplit('val', report[0] / 'val.json', report[0], twice)
    assert write_suspects(folder / 'twice', split, both, 5) == 5
    found = json.loads((folder / 'twice' / 'suspects.json').read_text())

    def rows(content):
        files = {one['id']: one['file_name'] for one in content['images']}
        return [(files[one['image_id']], one['category_id'], one['bbox'], marks(one)) for one in content['annotations']]

    assert rows(found) == rows(content)


# As label-studio-sdk 2.1.2 writes names with its server away, with its folder there, and with images; of an upload.
NAMES = (
    lambda name: name,
    lambda name: f'/data/local-files/?d=my%20images/{name}',
    lambda name: f'../../root/images/{name}',
    lambda name: f'images/094f897d__{name}',
    lambda name: f'/data/upload/3/ab12cd34-{name}',
)


@pytest.mark.parametrize('renamed', NAMES)
def test_corrected_images_replace_those_of_the_annotations(written, tmp_path, renamed):
    """All suspects of five images are corrected, and exported with other ids: the rest of the annotations stays."""
    folder, _, truth = written
    content = json.loads((folder / 'suspects.json').read_text())
    numbers = {one['id']: 70 + i for i, one in enumerate(content['categories'][::-1])}
    categories = [one | dict(id=numbers[one['id']]) for one in content['categories']]
    images = [one | dict(id=one['id'] + 500, file_name=renamed(one['file_name'])) for one in content['images']]
    objects = [
        one | dict(id=i, image_id=one['image_id'] + 500, category_id=numbers[one['category_id']])
        for i, one in enumerate(content['annotations'])
        if marks(one).get('suspect') != 'spurious'
    ]
    file, corrected = tmp_path / 'val.json', tmp_path / 'corrected.json'
    file.write_text(json.dumps(truth))
    corrected.write_text(json.dumps(dict(images=images, annotations=objects, categories=categories)))
    merge_corrected(file, corrected)
    merged = json.loads(file.read_text())
    listed = {one['id'] for one in content['images']}

    def rows(annotations):
        return sorted((one['image_id'], one['category_id'], one['bbox']) for one in annotations)

    kept = [one for one in truth['annotations'] if one['image_id'] not in listed]
    right = [one for one in content['annotations'] if marks(one).get('suspect') != 'spurious']
    assert [one for one in merged['annotations'] if one['image_id'] not in listed] == kept
    assert rows(merged['annotations']) == rows([*kept, *right])
    assert not any(map(marks, merged['annotations']))
    assert len({one['id'] for one in merged['annotations']}) == len(merged['annotations'])
    assert (merged['images'], merged['categories']) == (truth['images'], truth['categories'])


def test_corrected_images_of_other_data_are_refused(written, tmp_path):
    folder, _, truth = written
    file, corrected = tmp_path / 'val.json', tmp_path / 'corrected.json'
    file.write_text(json.dumps(truth))
    content = json.loads((folder / 'suspects.json').read_text())
    content['images'][0]['file_name'] = 'other.jpg'
    for text, error in (
        (json.dumps(content), 'has images or classes that .*val.json does not have: other.jpg$'),
        (json.dumps(content | dict(images=[], categories=[dict(id=1, name='bird')])), 'does not have: bird$'),
        ('{}', 'is not a COCO annotation file: '),
    ):
        corrected.write_text(text)
        with pytest.raises(UserError, match=error):
            merge_corrected(file, corrected)
        assert json.loads(file.read_text()) == truth


@pytest.mark.parametrize('form', ['{}', 'images/{}', '/data/local-files/?d=images/{}'])
@pytest.mark.parametrize(
    'names',
    [
        ('img.png', 'sub/img.png'),
        ('b/1.png', 'a/b/1.png'),
        ('A/1.png', 'a/1.png'),
        ('x/A.png', 'x/a.png'),
        ('50%25.png', '50%.png'),
        ('#4%20.png', 'a b.png'),
        ('q?d=5.png', '5.png'),
    ],
)
def test_names_that_audit_wrote_are_matched(names, form):
    """As they are, in a folder of images, and in an address, where they are escaped."""
    written = {form.format(quote(name) if '?' in form else name): Path(name) for name in names}
    if form == 'images/{}' and '?d=' in names[0]:
        return  # as an address is read
    assert match_names(written, map(Path, names)) == written


def small(**changes):
    content = dict(
        images=[dict(id=i, file_name=f'{i}.png') for i in (1, 2)],
        categories=[dict(id=1, name='cat')],
        annotations=[dict(id=i, image_id=i, category_id=1, bbox=[i, 0, 5, 5]) for i in (1, 2)],
    )
    return content | changes


def merged(tmp_path, old, new, encoding='utf-8'):
    for name, content in (('old.json', old), ('new.json', new)):
        (tmp_path / name).write_text(json.dumps(content), encoding=encoding)
    merge_corrected(tmp_path / 'old.json', tmp_path / 'new.json')
    return json.loads((tmp_path / 'old.json').read_text())['annotations']


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig', 'utf-16'])
@pytest.mark.parametrize('ids', [(1, 2), ('a', 'b'), (None, None), ()])
def test_any_ids_of_the_annotations_and_any_encoding(tmp_path, ids, encoding):
    old = small()
    for one in old['annotations']:
        del one['id']
    for one, value in zip(old['annotations'], ids, strict=False):
        one['id'] = value
    new = small(images=small()['images'][:1], annotations=[dict(image_id='1', category_id=1.0, bbox=[7, 7, 7, 7])])
    kept, added = merged(tmp_path, old, new, encoding)
    assert kept == old['annotations'][1]
    assert added == dict(id=3 if ids == (1, 2) else 1, image_id=1, category_id=1, bbox=[7, 7, 7, 7])


@pytest.mark.parametrize(
    ('changes', 'text'),
    [
        (dict(annotations=None), "no list of objects named 'annotations'"),
        (dict(annotations=[5]), "no list of objects named 'annotations'"),
        (dict(annotations=[dict(id=8, image_id=77, category_id=1)]), 'whose image_id it does not list, with the ids 8'),
        (dict(annotations=[dict(id=8, image_id=1, category_id=[])]), 'whose category_id it does not list'),
        (dict(annotations=[dict(id=8, image_id=1)]), 'whose category_id it does not list'),
        (dict(images=[dict(id=1, file_name=5)]), 'images without an id or a valid file_name'),
        (dict(images=[dict(id=1, file_name=None)]), 'images without an id or a valid file_name'),
        (dict(images=[dict(file_name='1.png')]), 'images without an id or a valid file_name'),
        (dict(categories=[dict(id=1)]), 'categories without an id or a valid name'),
    ],
)
def test_corrected_files_that_are_not_coco(tmp_path, changes, text):
    with pytest.raises(UserError, match=text):
        merged(tmp_path, small(), small(**changes))
    assert json.loads((tmp_path / 'old.json').read_text()) == small()


def test_marks_of_earlier_audits_are_replaced():
    old = small()
    old['annotations'][0]['attributes'] = dict(suspect='wrong box', occluded=True)
    old['annotations'][1]['attributes'] = dict(suspect='', suspect_score='', detected='', occluded=False)
    suspect = dict(file='2.png', kind='spurious', score=0.5, annotated='cat', box=[2, 0, 5, 5], detected=None)
    content = as_coco(old, [suspect], ['1.png', '2.png'])
    assert [one['attributes'] for one in content['annotations']] == [
        dict(occluded=True),
        dict(occluded=False, suspect='spurious', suspect_score='0.50', detected=''),
    ]
    for image in content['images']:
        image |= dict(width=9, height=9)
    assert [task['data']['suspects'] for task in label_studio_tasks(content)] == ['', 'spurious 0.50: cat']


def test_a_file_listed_twice_has_the_objects_of_both(tmp_path):
    twice = small(images=[dict(id=i, file_name='1.png') for i in (1, 2)])
    suspects = [
        dict(file='1.png', kind='spurious', score=0.5, annotated='cat', box=[i, 0, 5, 5], detected=None) for i in (1, 2)
    ]
    content = as_coco(twice, suspects, ['1.png'])
    assert [(one['image_id'], one['bbox'], marks(one)['suspect']) for one in content['annotations']] == [
        (2, [1, 0, 5, 5], 'spurious'),
        (2, [2, 0, 5, 5], 'spurious'),
    ]
    content['annotations'].pop()
    assert [one['bbox'] for one in merged(tmp_path, twice, content)] == [[1, 0, 5, 5]]


def test_names_in_addresses_of_label_studio_are_escaped(tmp_path):
    """As Label Studio's local storage writes them: it reads what follows & as another parameter."""
    image = dict(id=1, file_name='a b/c&d #1+50%.jpg', width=10, height=10)
    (task,) = label_studio_tasks(dict(images=[image], annotations=[], categories=[]))
    assert task['data']['image'] == '/data/local-files/?d=images/a%20b/c%26d%20%231%2B50%25.jpg'


def test_tasks_have_boxes_in_percent_and_suspects_in_words(written):
    folder, suspects, _ = written
    tasks = json.loads((folder / 'label_studio.json').read_text())
    content = json.loads((folder / 'suspects.json').read_text())
    for task, image in zip(tasks, content['images'], strict=True):
        own = [one for one in content['annotations'] if one['image_id'] == image['id']]
        (prediction,) = task['predictions']
        assert task['data']['image'] == f'/data/local-files/?d=images/{image["file_name"]}'
        for result, one in zip(prediction['result'], own, strict=True):
            value = result['value']
            box = [value[key] * 400 / 100 for key in ('x', 'y', 'width', 'height')]
            assert box == pytest.approx(one['bbox'])
            assert value['rectanglelabels'] == [CLASSES[one['category_id']]]
            assert ('meta' in result) == bool(marks(one))
        assert task['data']['suspects'].count(';') + 1 == sum(one['file'] == image['file_name'] for one in suspects)


@pytest.mark.slow
def test_datumaro_reads_what_cvat_would(written):
    """CVAT reads COCO with datumaro; its labels must have the attributes."""
    datumaro = pytest.importorskip('datumaro', reason='datumaro is not installed')
    folder, suspects, _ = written
    annotations = folder / 'coco' / 'annotations'
    annotations.mkdir(parents=True)
    (folder / 'coco' / 'images').symlink_to(folder / 'images')
    (annotations / 'instances_default.json').write_bytes((folder / 'suspects.json').read_bytes())
    dataset = datumaro.Dataset.import_from(str(folder / 'coco'), 'coco_instances')
    names = [label.name for label in dataset.categories()[datumaro.AnnotationType.label]]
    found = Counter(
        (f'{Path(item.id).name}.jpg', *(str(one.attributes[key]) for key in ('suspect', 'suspect_score')))
        + (names[one.label], one.attributes['detected'])
        for item in dataset
        for one in item.annotations
        if one.attributes.get('suspect')
    )
    files = {f'{item.id}.jpg' for item in dataset}
    assert len(files) == 5
    plain = expected_marks(suspects, files)
    assert Counter((a, b, float(c), *rest) for a, b, c, *rest in found) == Counter(
        (a, b, float(c), *rest) for a, b, c, *rest in plain
    )


@pytest.mark.slow
def test_cvat_sdk_accepts_the_labels(written):
    models = pytest.importorskip('cvat_sdk.models', reason='cvat-sdk is not installed')
    folder, *_ = written
    labels = json.loads((folder / 'cvat_labels.json').read_text())
    read = [models.PatchedLabelRequest._from_openapi_data(**label) for label in labels]
    assert [label.name for label in read] == list(CLASSES.values())
    assert [spec['name'] for spec in labels[0]['attributes']] == ['suspect', 'suspect_score', 'detected']
    for spec in labels[0]['attributes']:
        models.AttributeRequest._from_openapi_data(**spec)


@pytest.mark.slow
def test_label_studio_accepts_the_tasks(written):
    """Each prediction fits the labeling interface, and its converter makes COCO of it again."""
    interface = pytest.importorskip(
        'label_studio_sdk.label_interface', reason='label-studio-sdk is not installed'
    ).LabelInterface((folder := written[0]).joinpath('label_studio.xml').read_text())
    from label_studio_sdk.converter import Converter

    tasks = json.loads((folder / 'label_studio.json').read_text())
    interface.validate()
    for task in tasks:
        assert interface.validate_prediction(task['predictions'][0])
    annotated = [dict(task, id=i, annotations=task['predictions']) for i, task in enumerate(tasks, 1)]
    (folder / 'export').mkdir()
    (folder / 'export' / 'tasks.json').write_text(json.dumps(annotated))
    converter = Converter(str(folder / 'label_studio.xml'), str(folder), download_resources=False)
    converter.convert_to_coco(str(folder / 'export'), str(folder / 'coco'), is_dir=True)
    back = json.loads((folder / 'coco' / 'result.json').read_text())
    content = json.loads((folder / 'suspects.json').read_text())
    assert len(back['annotations']) == len(content['annotations'])


@pytest.mark.slow
def test_fiftyone_reads_the_attributes(written):
    """By its reader of COCO files: its datasets need MongoDB."""
    coco = pytest.importorskip('fiftyone.utils.coco', reason='fiftyone is not installed')
    folder, suspects, _ = written
    _, classes, _, images, objects = coco.load_coco_detection_annotations(str(folder / 'suspects.json'), True)
    found = Counter()
    for image_id, image in images.items():
        for one in objects[image_id]:
            detection = one.to_detection((image['width'], image['height']), classes)
            if detection.has_field('suspect') and detection['suspect']:
                values = [detection[key] for key in ('suspect', 'suspect_score', 'label', 'detected')]
                found[(image['file_name'], *values)] += 1
    assert len(images) == 5
    assert found == expected_marks(suspects, {image['file_name'] for image in images.values()})
