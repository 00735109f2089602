"""Images and videos that `predict` reads, and inputs that it refuses."""

import os
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from PIL import Image

from tokennorm.base.messages import UserError
from tokennorm.images.pixels import ImageError
from tokennorm.inference.input_images import check_sources, is_video, name_of_url, open_sources


def gray(value):
    return np.full((48, 64, 3), value, np.uint8)


def write_video(path):
    video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*'mp4v'), 6, (64, 48))
    for i in range(10):
        video.write(gray(20 * i))
    video.release()
    return str(path)


def names_and_levels(source):
    return [(name, round(float(image.mean()) / 20)) for name, image in source.images]


def test_every_third_frame_of_a_video(tmp_path):
    source = open_sources([write_video(tmp_path / 'v.mp4')], tmp_path / 'out', every=3)
    assert (source.count, source.frame_rate) == (4, 2)
    assert names_and_levels(source) == [('v/000000', 0), ('v/000003', 3), ('v/000006', 6), ('v/000009', 9)]
    assert source.times == {f'v/00000{i}': pytest.approx(i / 6, abs=0.001) for i in (0, 3, 6, 9)}


def test_times_of_a_webcam_begin_at_0(tmp_path, monkeypatch):
    frame = gray(100)
    camera = SimpleNamespace(
        isOpened=lambda: True, get=lambda key: 25.0, grab=lambda: True, retrieve=lambda: (1, frame)
    )
    monkeypatch.setattr(cv2, 'VideoCapture', lambda index: camera)
    source = open_sources(['0'], tmp_path / 'out')
    assert [next(source.images)[0] for _ in range(2)] == ['frame/000000', 'frame/000001']
    assert list(source.times.values()) == pytest.approx([0, 0], abs=0.5)  # not of the machine's clock


def test_files_and_folders_are_named_from_their_common_folder(tmp_path):
    for i, name in enumerate(['a/1.png', 'b/1.png', 'b/c/2.JPG', 'out/vis/3.png', 'out/crops/red/4.png']):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(tmp_path / name), gray(20 * i))
    (tmp_path / 'b' / 'empty.png').write_bytes(b'')
    files = open_sources([str(tmp_path / 'b' / '1.png'), str(tmp_path / 'a' / '1.png')], tmp_path / 'out')
    assert (files.count, files.frame_rate) == (2, None)
    assert names_and_levels(files) == [('b/1.png', 1), ('a/1.png', 0)]
    files = open_sources([str(tmp_path / 'b/1.png'), str(tmp_path / 'b/../a/1.png')], tmp_path / 'out')
    assert names_and_levels(files) == [('b/1.png', 1), ('a/1.png', 0)]
    folder = open_sources([str(tmp_path)], tmp_path / 'out')
    assert open_sources([str(tmp_path / 'b')], tmp_path).count == 3  # in the output folder, not in its drawings
    assert [(name, isinstance(image, ImageError)) for name, image in folder.images] == [
        ('a/1.png', False),
        ('b/1.png', False),
        ('b/c/2.JPG', False),
        ('b/empty.png', True),
    ]


def test_inputs_that_cannot_work_are_refused_with_a_hint(tmp_path):
    (tmp_path / 'notes.txt').write_text('text')
    cases = {
        ('none.jpg',): 'none.jpg not found',
        (str(tmp_path / 'notes.txt'), str(tmp_path / 'notes.txt')): 'several inputs must be image files',
        (str(tmp_path), 'rtsp://camera'): 'several inputs must be image files',
    }
    for sources, message in cases.items():
        with pytest.raises(UserError, match=message):
            check_sources(sources)
    with pytest.raises(UserError, match=r'has no images'):
        open_sources([str(tmp_path)], tmp_path / 'out')
    with pytest.raises(UserError, match=r'notes.txt cannot be opened as a video, and is not an image'):
        open_sources([str(tmp_path / 'notes.txt')], tmp_path / 'out')


def test_an_image_without_a_suffix_is_an_image(tmp_path):
    cv2.imwrite(str(tmp_path / 'a.jpg'), gray(100))
    (tmp_path / 'a.jpg').rename(tmp_path / 'a')
    source = open_sources([str(tmp_path / 'a')], tmp_path / 'out')
    assert (source.frame_rate, names_and_levels(source)) == (None, [('a', 5)])
    for kind in ('WEBP', 'GIF'):
        Image.fromarray(gray(100)).save(tmp_path / kind, kind)
        assert not is_video(str(tmp_path / kind))
    (tmp_path / 'frames.mjpeg').write_bytes(2 * (tmp_path / 'a').read_bytes())  # one image after another
    assert is_video(str(tmp_path / 'frames.mjpeg'))
    assert is_video(f'http://127.0.0.1{tmp_path}/a')  # not the file of this machine


def test_a_drawing_replaces_no_input(tmp_path):
    (tmp_path / 'vis').mkdir()
    cv2.imwrite(str(tmp_path / 'vis' / 'a.png'), gray(9))
    (tmp_path / 'vis' / 'link.png').symlink_to(tmp_path / 'a.png')
    for name in ('a.png', 'link.png', 'other.png'):
        cv2.imwrite(str(tmp_path / name), gray(9))
    for names in (['vis/a.png'], ['a.png', 'vis/a.png'], ['link.png', 'a.png']):
        with pytest.raises(UserError, match=r'the drawing of .* would replace one of the images: choose another --out'):
            open_sources([str(tmp_path / name) for name in names], tmp_path)
    video = write_video(tmp_path / 'detections.mp4')
    with pytest.raises(UserError, match=r'the drawing of .* would replace it: choose another --out'):
        open_sources([video], tmp_path)
    assert open_sources([video], tmp_path, drawings=False).frame_rate
    open_sources([str(tmp_path / 'vis' / 'a.png')], tmp_path, drawings=False)
    open_sources([str(tmp_path / 'vis' / 'a.png')], tmp_path / 'vis')
    assert open_sources([str(tmp_path / name) for name in ('a.png', 'other.png', 'vis/../a.png')], tmp_path).count == 2


def test_videos_need_names_in_utf_8(tmp_path):
    path = tmp_path / os.fsdecode(b'caf\xe9.mp4')
    path.write_bytes(b'')
    with pytest.raises(UserError, match='is not UTF-8, which OpenCV needs for a video'):
        check_sources([str(path)])


@pytest.mark.parametrize(
    ('url', 'name'),
    [
        ('http://host:80/a/b.jpg', 'host:80/a/b.jpg'),
        ('https://host/a.jpg?width=3/../../x#y', 'host/a.jpg'),
        ('http://host/../../../../x.jpg', 'host/x.jpg'),
        ('http://host/a/../../x.jpg', 'host/a/x.jpg'),
        ('http://../../x.jpg', 'x.jpg'),
        ('http://..', 'image'),
        ('http://', 'image'),
        ('http:///etc/x.jpg', 'etc/x.jpg'),
        ('http://host//./a/.//x.jpg', 'host/a/x.jpg'),
        ('http://host/..\\..\\C:\\x.jpg', 'host/C:/x.jpg'),
        ('http://host/.. /x.jpg', 'host/x.jpg'),
        ('http://host/%2e%2e/%2e%2e/x.jpg', 'host/%2e%2e/%2e%2e/x.jpg'),
        ('http://me:secret@host/x.jpg', 'host/x.jpg'),
        ('http://host/a\n/\x1b[2J/x.jpg', 'host/a\n/\\x1b[2J/x.jpg'),
        ('http://host/größe/红.jpg', 'host/größe/红.jpg'),
        (f'http://host/{"a" * 300}.jpg', f'host/{"a" * 176}.jpg'),
        (f'http://host/{"红" * 100}.jpg', f'host/{"红" * 58}.jpg'),
    ],
)
def test_names_of_urls_stay_in_the_output_folder(url, name):
    assert name_of_url(url) == name
    path = os.path.normpath(f'/out/vis/{name}')
    assert path.startswith('/out/vis/')
