"""What a prediction keeps, draws and writes, with a detector of known results."""

import json
import os
import time

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.helpers.http import serve
from tokennorm.base.messages import UserError
from tokennorm.images.drawing import color_of
from tokennorm.inference.input_images import InputImages, check_sources, open_sources
from tokennorm.inference.prediction import OF_PREDICT, Options, Predictor, predict, uneven_times
from tokennorm.inference.runtime import BaseDetector, ImageError

SCORES = np.array([0.9, 0.8, 0.5, 0.4, 0.3], np.float32)
LABELS = np.array([0, 1, 0, 1, 0])


class Five(BaseDetector):
    """Finds five objects on each image; images of 2 rows cannot be resized."""

    classes = ('disk', 'star')
    category_ids = [7, 3]

    def detect(self, images, batch_size=1):
        if any(len(image) == 2 for image in images):
            raise ImageError('too narrow')
        boxes = np.array([[4 * i, 2, 4 * i + 10, 20] for i in range(5)], np.float32)
        return [self.detections(boxes, SCORES, LABELS, None) for _ in images]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / 'in').mkdir()
    for name in ('a.png', 'b.pgm', 'c.png', 'd.png'):
        shape = (2, 300, 3) if name == 'c.png' else (32, 48) if name == 'b.pgm' else (32, 48, 3)
        cv2.imwrite(str(tmp_path / 'in' / name), np.full(shape, 90, np.uint8))
    return tmp_path


def run(folder, **options):
    source = open_sources([str(folder / 'in')], folder)
    results = predict(Predictor(Five(), Options(**options)), source, folder)
    return results, json.loads((folder / 'detections.json').read_text())


@pytest.mark.parametrize(
    ('thresholds', 'kept'),
    [
        (dict(disk=0.5, star=0.8), [0.9, 0.8, 0.5]),  # equal to a score: it counts
        (dict(disk=0.8, star=0.4), [0.9, 0.8, 0.4]),
        (dict(disk=0.95, star=0.95), []),
        (dict(disk=0.50001, star=0.0), [0.9, 0.8, 0.4]),
    ],
)
def test_thresholds_of_each_class(thresholds, kept, folder):
    lowest = {name: float(np.float32(value)) for name, value in thresholds.items()}
    (folder / 'thresholds.json').write_text(json.dumps(dict(classes=lowest)))
    results, content = run(folder, thresholds=str(folder / 'thresholds.json'), drawings=False)
    scores = [one['score'] for one in content['annotations'] if one['image_id'] == 1]
    assert scores == pytest.approx(kept)
    assert len(content['annotations']) == results.shown == 3 * len(kept)
    assert [one['category_id'] for one in content['annotations'][: len(kept)]] == [
        Five.category_ids[LABELS[np.flatnonzero(np.isclose(SCORES, score))[0]]] for score in kept
    ]


def test_the_score_that_is_drawn_leaves_the_json_whole(folder):
    results, content = run(folder, score_thr=float(SCORES[2]))
    assert len(content['annotations']) == 15
    assert results.shown == 9
    drawn = cv2.imread(str(folder / 'vis' / 'a.png'))
    expected = Five().detect([drawn])[0].select(SCORES >= 0.5).draw(np.full((32, 48, 3), 90, np.uint8))
    np.testing.assert_array_equal(drawn, expected)


def test_the_score_that_is_drawn_holds_with_thresholds(folder):
    results, _ = run(folder, score_thr=float(SCORES[1]), thresholds='0.1')
    assert results.shown == 3 * 2


def test_names_that_are_not_utf_8_are_drawn(folder):
    name = os.fsdecode(b'caf\xe9.png')
    (folder / 'in' / 'a.png').rename(folder / 'in' / name)
    run(folder)
    assert (folder / 'vis' / name).is_file()


@pytest.mark.parametrize('batch_size', [1, 3])
def test_one_bad_image_or_drawing_loses_no_other(batch_size, folder):
    (folder / 'in' / 'e.png').write_bytes(b'')
    (folder / 'vis' / 'd.png').mkdir(parents=True)  # in the way of the drawing
    (folder / 'vis' / 'd.png.png').mkdir()
    results, content = run(folder, batch_size=batch_size)
    assert [image['file_name'] for image in content['images']] == ['a.png', 'b.pgm', 'd.png']
    assert (results.unread, results.unwritten) == (['c.png (too narrow)', 'e.png (it cannot be decoded)'], ['d.png'])
    assert len(cv2.imread(str(folder / 'vis' / 'b.pgm.png')).shape) == 3


def test_an_error_keeps_what_is_done(folder):
    class Breaks(Five):
        def detect(self, images, batch_size=1):
            if self.count == 2:
                raise RuntimeError('out of memory')
            self.count += 1
            return super().detect(images, batch_size)

    detector = Breaks()
    detector.count = 0
    with pytest.raises(RuntimeError, match='out of memory'):
        predict(Predictor(detector, Options()), open_sources([str(folder / 'in')], folder), folder)
    content = json.loads((folder / 'detections.json').read_text())
    assert [image['file_name'] for image in content['images']] == ['a.png', 'b.pgm']
    assert len(content['annotations']) == 10


def test_results_come_while_the_run_continues(folder, monkeypatch):
    monkeypatch.setattr('tokennorm.inference.prediction._EVERY', 0)
    seen = []

    class Looks(Five):
        def detect(self, images, batch_size=1):
            path = folder / 'detections.json'
            seen.append(len(json.loads(path.read_text())['images']) if path.is_file() else 0)
            return super().detect(images, batch_size)

    predict(Predictor(Looks(), Options()), open_sources([str(folder / 'in')], folder), folder)
    assert seen[0] == 0
    assert seen[-1] >= 1


def test_tiles_are_counted(folder, capsys):
    run(folder, tiles=16, overlap=0.0, drawings=False)
    assert '6 tiles of 16 x 16 pixels for an image of 48 x 32' in capsys.readouterr().out


def test_progress_in_a_file_is_not_a_line_per_image(folder, capsys):
    run(folder, drawings=False)
    assert capsys.readouterr().out == '4 of 4 images\n'


def test_labels_say_that_they_are_of_predict(folder):
    run(folder, txt=True, drawings=False)
    assert (folder / 'labels' / OF_PREDICT).is_file()


def test_classes_of_signs_have_their_own_folders_of_crops(folder, monkeypatch):
    monkeypatch.setattr(Five, 'classes', ('C#. ', '../C+'))
    run(folder, crops=True, drawings=False)
    assert {path.name for path in (folder / 'crops').iterdir()} == {'C#_', '__C+'}


def test_classes_crops_and_labels(folder):
    (folder / 'in' / 'a.jpg').write_bytes((folder / 'in' / 'a.png').read_bytes())  # would have the same label file
    results, content = run(folder, classes=['star'], crops=True, txt=True, drawings=False)
    assert {one['category_id'] for one in content['annotations']} == {Five.category_ids[1]}
    assert results.shown == 8
    crop = cv2.imread(str(folder / 'crops' / 'star' / 'a.png_2.jpg'))
    assert crop.shape == (18, 10, 3)
    lines = (folder / 'labels' / 'a.txt').read_text().splitlines()
    assert [line.split()[0] for line in lines] == ['1', '1']
    x, y, w, h = map(float, lines[0].split()[1:])  # the box 4, 2, 14, 20 in an image of 48 x 32
    assert (x * 48, y * 32, w * 48, h * 32) == pytest.approx((9, 11, 10, 18), abs=1e-4)
    assert not (folder / 'vis').exists()
    assert len(list((folder / 'labels').glob('*.txt'))) == len(content['images'])
    with pytest.raises(UserError, match=r"--classes: no class 'stra' \(did you mean star\?\); expected some of disk"):
        run(folder, classes=['stra'])


def test_images_behind_urls(folder):
    with serve(folder / 'in') as url:
        sources = [
            f'{url}/a.png?size=1',
            f'{url}/a.png?size=2',
            f'{url}/a.png?size=3',
            str(folder / 'in' / 'd.png'),
            f'{url}/none.png',
        ]
        check_sources(sources)
        results = predict(Predictor(Five(), Options()), open_sources(sources, folder), folder)
    place = url.partition('://')[2]
    assert [image['file_name'] for image in results.content['images']] == [
        f'{place}/a.png',
        f'{place}/a_2.png',
        f'{place}/a_3.png',
        'd.png',
    ]
    assert results.unread == [f'{place}/none.png (HTTP Error 404: File not found)']
    assert (folder / 'vis' / place / 'a.png').is_file()


def test_the_best_is_drawn_last():
    image = np.full((32, 48, 3), 90, np.uint8)
    found = Five().detect([image])[0]
    mixed = found.select(np.array([3, 0, 4, 1, 2]))
    np.testing.assert_array_equal(found.draw(image), mixed.draw(image))
    assert mixed.class_names == [found.class_names[i] for i in (3, 0, 4, 1, 2)]
    two = mixed.select(np.array([0, 1]))
    two.boxes[:], two.labels[:], two.scores[:] = [[40, 120, 300, 280], [120, 40, 400, 200]], [0, 1], [0.9, 0.4]
    picture = two.draw(np.zeros((320, 480, 3), np.uint8))
    assert tuple(picture[200, 300]) == color_of(0)  # where an edge of one crosses an edge of the other


def test_detections_are_drawn_on_what_a_detector_takes(folder):
    """A small image is enlarged, a frame is not. A notebook shows the drawing."""
    pixels = cv2.imread(str(folder / 'in' / 'a.png'))
    found = Five().detect([pixels])[0]
    drawn = found.draw(folder / 'in' / 'a.png')
    assert (drawn.shape, drawn.dtype) == ((32 * 7, 48 * 7, 3), np.uint8)
    np.testing.assert_array_equal(drawn, found.draw(pixels))
    np.testing.assert_array_equal(drawn, found.draw(Image.fromarray(pixels)))
    assert found.draw(pixels, same_size=True).shape == (32, 48, 3)
    assert found.draw(np.zeros((600, 800), np.uint8)).shape == (600, 800, 3)
    shown = cv2.imdecode(np.frombuffer(drawn._repr_png_(), np.uint8), cv2.IMREAD_COLOR)
    np.testing.assert_array_equal(shown, drawn)
    for other in (drawn[0], drawn[:0], drawn / 255, drawn > 3, drawn[..., :2]):  # have the class, but are not images
        assert other._repr_png_() is None
    found.select(found.scores > 1).draw(pixels)


class Mean(BaseDetector):
    """Finds one object, whose box and score are made of the image's pixels; the more pixels, the faster."""

    classes = ('disk',)
    category_ids = [1]

    def detect(self, images, batch_size=1):
        found = []
        for image in images:
            time.sleep(0.3 / len(image))
            mean = image.mean(dtype=np.float64)
            box = np.array([[1, 2, 5 + mean / 64, 9 + mean / 32]], np.float32)
            found.append(self.detections(box, np.float32([0.3 + mean / 400]), np.array([0]), None))
        return found


@pytest.mark.parametrize('batch_size', [1, 4])
def test_a_folder_gives_what_its_images_give_one_by_one(batch_size, tmp_path):
    (tmp_path / 'in').mkdir()
    generator = np.random.default_rng(0)
    images = {f'{i:02d}.png': generator.integers(0, 20 * i + 20, (90 - 7 * i, 40, 3), np.uint8) for i in range(12)}
    for name, image in images.items():
        cv2.imwrite(str(tmp_path / 'in' / name), image)
    predict(
        Predictor(Mean(), Options(batch_size=batch_size, crops=True)),
        open_sources([str(tmp_path / 'in')], tmp_path),
        tmp_path,
    )
    content = json.loads((tmp_path / 'detections.json').read_text())
    assert [(one['id'], one['file_name']) for one in content['images']] == list(enumerate(images, 1))
    assert [one['image_id'] for one in content['annotations']] == list(range(1, 13))
    for annotation, (name, image) in zip(content['annotations'], images.items(), strict=True):
        found = Mean().detect([image])[0]
        assert annotation['score'] == pytest.approx(found.scores[0], abs=1e-5)
        left, top, right, bottom = found.boxes[0]
        assert annotation['bbox'] == pytest.approx([left, top, right - left, bottom - top], abs=0.01)
        assert (cv2.imread(str(tmp_path / 'vis' / name)) == found.draw(image)).all()
        crop = cv2.imread(str(tmp_path / 'crops' / 'disk' / f'{name}_1.jpg'))
        assert crop.shape == image[2 : round(bottom), 1 : round(right)].shape


@pytest.mark.parametrize(
    ('most', 'score_thr', 'tiles', 'full'),
    [
        (5, 0.3, None, 3),  # all five are drawn, and there may be more
        (5, 0.35, None, 0),  # one is weak: others would be weaker
        (6, 0.3, None, 0),
        (None, 0.3, None, 0),  # a file of version 1.2
        (5, 0.3, 32, 6),  # two tiles of each of three images
    ],
)
def test_images_with_all_detections_that_may_be_are_counted(folder, most, score_thr, tiles, full):
    detector = Five()
    detector.most_detections = most
    predictor = Predictor(detector, Options(score_thr=score_thr, tiles=tiles, drawings=False))
    predict(predictor, open_sources([str(folder / 'in')], folder), folder)
    assert predictor.full == full


@pytest.mark.parametrize(
    ('times', 'rate', 'said'),
    [
        (np.arange(100) / 25, 25, False),
        (np.arange(100) / 25 + 0.4, 25, False),
        (np.arange(36_000) / 30.01, 30, False),  # an hour
        (np.cumsum(np.tile([0.02, 0.06], 50)), 25, False),  # uneven, and never far from it
        (np.arange(100) / 10, 25, True),  # a camera of 25 frames, and a detector of 10
        (np.r_[np.arange(50) / 25, 20 + np.arange(50) / 25], 25, True),  # a pause
        ([], 25, False),
        ([0.0, np.nan], 25, False),
    ],
)
def test_times_that_a_constant_rate_does_not_give_are_said(times, rate, said):
    line = uneven_times(list(times), rate)
    assert bool(line) == said
    assert not said or f'it is up to {max(abs(times - np.arange(100) / rate)):.1f} seconds off' in line


def test_frames_of_another_size_are_named(tmp_path):
    """As of a stream that changes it: OpenCV's writer drops them without an error."""
    frames = [np.full((32, 48 + 16 * (i == 2), 3), 90, np.uint8) for i in range(4)]
    source = InputImages(((f'frame/{i}', frame) for i, frame in enumerate(frames)), 4, 5.0)
    results = predict(Predictor(Five(), Options(), 5.0), source, tmp_path)
    assert results.unwritten == ['frame/2']
    assert len(results.content['images']) == 4


def test_every_object_has_a_crop(tmp_path):
    class Tiny(Five):
        def detect(self, images, batch_size=1):
            boxes = np.array([[4.1, 4.1, 4.3, 9], [48, 0, 48, 3], [0, 31.9, 9, 32], [4, 2, 14, 20]], np.float32)
            return [self.detections(boxes, SCORES[:4], LABELS[:4], None) for _ in images]

    cv2.imwrite(str(tmp_path / 'a.png'), np.full((32, 48, 3), 90, np.uint8))
    source = open_sources([str(tmp_path / 'a.png')], tmp_path)
    results = predict(Predictor(Tiny(), Options(drawings=False, crops=True)), source, tmp_path)
    sizes = {path.stem: cv2.imread(str(path)).shape[:2] for path in tmp_path.glob('crops/*/*')}
    assert sizes == {'a.png_1': (5, 1), 'a.png_2': (3, 1), 'a.png_3': (1, 9), 'a.png_4': (18, 10)}
    assert results.unwritten == []
