"""Drawn boxes: names in every script, on plates that cover no others."""

import sys

import cv2
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tokennorm.images import drawing
from tokennorm.images.drawing import Text, cut_middle, draw, names_for_matplotlib, printable, text_plate

RED = (0, 0, 255)


@pytest.fixture
def no_system_fonts(monkeypatch):
    """DejaVu Sans only, which matplotlib has."""
    monkeypatch.setattr('matplotlib.font_manager.findSystemFonts', list)
    drawing._font_file.cache_clear()
    yield
    drawing._font_file.cache_clear()


def picture_of(text, size=1.0):
    picture = np.zeros((60, 600, 3), np.uint8)
    Text(text, size, 1).draw(picture, 4, 40, (255, 255, 255))
    return picture


@pytest.mark.parametrize(
    ('text', 'plain'),
    [
        ('café', 'cafe'),
        ('cafe\u0301', 'cafe'),
        ('Łódź', r'\u0141odz'),
        ('猫犬', r'\u732b\u72ac'),
        ('고양이', r'\uace0\uc591\uc774'),
        ('グリーン', r'\u30b0\u30ea\u30fc\u30f3'),
        ('ＡＢ', 'AB'),  # noqa: RUF001
        ('\udce9', r'\udce9'),
    ],
)
def test_names_in_ascii_are_readable(text, plain):
    assert printable(text) == plain


@pytest.mark.parametrize(
    'text', ['größe', 'Łódź', 'кошка', 'Ελληνικά', 'قطة', 'חתול', 'Հայ', 'tiếng Việt', '½ m²', '→']
)
def test_names_of_other_alphabets_are_drawn(no_system_fonts, text):
    shown = Text(text, 1.0, 1)
    assert shown.text == text
    picture = picture_of(text)
    assert picture.max() == 255
    rows, columns = picture[..., 0].nonzero()
    assert columns.min() + 2 >= 4
    assert columns.max() <= 4 + shown.length
    assert rows.min() >= 40 - shown.tall
    assert rows.max() <= 40 + shown.below
    assert (picture != picture_of(text[:-1] + 'x')).any()


def test_letters_with_accents_differ_from_those_without(no_system_fonts):
    assert (picture_of('größe') != picture_of('grosse')).any()
    np.testing.assert_array_equal(picture_of('étude'), picture_of('e\u0301tude'))


def test_what_no_font_has_is_drawn_as_an_escape(no_system_fonts):
    assert Text('красный 红色', 1.0, 1).text == r'красный \u7ea2\u8272'
    assert Text('红色', 1.0, 1).text == r'\u7ea2\u8272'
    assert Text('a\x1b[31mb\nc', 1.0, 1).text == r'a\x1b[31mb c'
    assert Text('\udce9', 1.0, 1).text == r'\udce9'


def test_a_font_of_the_system_draws_what_dejavu_lacks(tmp_path, monkeypatch):
    """The first font with most of the characters; damaged ones are passed over."""
    (tmp_path / 'a.ttf').write_bytes(b'no font')
    monkeypatch.setattr(drawing, '_face', lambda file, pixels: open(file, 'rb').close())
    has = {'DejaVuSans.ttf': 'abc', 'b-Bold.ttf': '红色a', 'c.ttf': '红a', 'd.otf': '红色a', 'e.ttf': '红色abc'}
    monkeypatch.setattr(drawing, '_characters', lambda file: frozenset(has[file.rpartition('/')[2]]))
    for name in list(has)[1:]:
        (tmp_path / name).touch()
    monkeypatch.setattr('matplotlib.font_manager.findSystemFonts', lambda: [str(path) for path in tmp_path.iterdir()])
    for text, file in (('ab', 'DejaVuSans.ttf'), ('红色', 'd.otf'), ('红色b', 'e.ttf'), ('x红', 'c.ttf')):
        drawing._font_file.cache_clear()
        monkeypatch.setitem(has, 'a.ttf', '')
        assert drawing._font_file(frozenset(text)).endswith(file), text
    drawing._font_file.cache_clear()


def test_without_pillow_names_are_drawn_in_ascii(monkeypatch):
    monkeypatch.setitem(sys.modules, 'PIL', None)
    drawing._font_file.cache_clear()
    assert Text('größe', 1.0, 1).text == r'gro\xdfe'
    assert picture_of('größe').max() == 255
    drawing._font_file.cache_clear()


def test_ascii_is_drawn_as_opencv_does():
    expected = np.zeros((60, 600, 3), np.uint8)
    cv2.putText(expected, 'cat 0.87', (4, 40), cv2.FONT_HERSHEY_SIMPLEX, 1.0, (255, 255, 255), 1, cv2.LINE_AA)
    np.testing.assert_array_equal(picture_of('cat 0.87'), expected)


@pytest.mark.parametrize('at', [(-300, -5), (-10, 3), (590, 40), (700, 40), (5, 90), (0, -90)])
def test_texts_at_the_borders(at):
    whole, part = np.zeros((300, 1500, 3), np.uint8), np.zeros((60, 600, 3), np.uint8)
    text = Text('größe und кошка', 1.0, 1)
    text.draw(whole, at[0] + 400, at[1] + 100, (255, 255, 255))
    text.draw(part, *at, (255, 255, 255))
    np.testing.assert_array_equal(part, whole[100:160, 400:1000])


def test_boxes_are_two_pixels_wide_in_a_black_frame():
    drawn = draw(np.full((100, 100, 3), 128, np.uint8), np.array([[20, 30, 60, 70]]), [''], [RED])
    across = drawn[50, 10:30].tolist()
    assert across.count([0, 0, 255]) in (2, 3)  # OpenCV's lines of 2 pixels have 3
    assert across.count([0, 0, 0]) >= 2


def test_a_plate_has_the_color_of_its_box_and_readable_ink():
    for color, ink in ((RED, 255), ((255, 255, 255), 0), ((34, 197, 94), 0)):
        shades = text_plate('größe 0.93', 0.5, 1, color).reshape(-1, 3).tolist()
        assert max(map(tuple, shades), key=lambda one: shades.count(list(one))) == color
        assert [ink] * 3 in shades


@pytest.mark.parametrize('count', [1, 3, 8])
def test_no_text_is_left_out_or_covered(count):
    image = np.zeros((200, 300, 3), np.uint8)
    colors = [(10 * i + 100, 250 - 10 * i, 200) for i in range(count)]
    names = [f'{("dog", "größe")[i % 2]} 0.{i}' for i in range(count)]
    drawn = draw(image, np.tile([40, 60, 200, 160], (count, 1)), names, colors)
    for name, color in zip(names, colors, strict=True):
        plate = text_plate(name, 0.4, 1, color)
        windows = np.lib.stride_tricks.sliding_window_view(drawn, plate.shape)[..., 0, :, :, :]
        assert (windows == plate).all((2, 3, 4)).any()


LONG = 'erythrocyte with an abnormal, eccentric pale area'


def area_of(drawn, color):
    """Top, bottom, left and right of the pixels of a color."""
    rows, columns = np.nonzero((drawn == color).all(-1))
    return rows.min(), rows.max(), columns.min(), columns.max()


@pytest.mark.parametrize(('text', 'most'), [(LONG, 100), (LONG, 20), ('größe und кошка und قطة', 90), ('cat', 3)])
def test_a_long_name_loses_its_middle(text, most):
    shown = cut_middle(text, most, 0.4, 1)
    start, _, end = shown.partition('...')
    assert Text(shown, 0.4, 1).length <= most or (start == text[0] and not end)
    assert text.startswith(start)
    assert text.endswith(end)
    assert len(start) - len(end) in (0, 1)
    assert cut_middle(text, 600, 0.4, 1) == text


def test_a_plate_is_as_wide_as_a_third_of_the_image_or_its_box():
    for box, widest in (([10, 100, 40, 140], 160), ([10, 100, 300, 140], 290)):
        drawn = draw(np.zeros((300, 480, 3), np.uint8), np.array([box]), [LONG], [RED], notes=['0.87'])
        *_, left, right = area_of(drawn[:95], RED)  # above the box
        assert widest - 20 < right - left <= widest


def test_a_legend_has_the_names_of_many_objects():
    """Their plates would hide the image: scores stay on small plates, and, where these are too many, boxes only."""
    image = np.zeros((360, 480, 3), np.uint8)
    corners = np.array([[x, y, x + 50, y + 40] for x in range(10, 430, 60) for y in range(20, 300, 70)])
    names, colors = [LONG, 'cat'] * 14, [RED, (0, 255, 0)] * 14
    drawn = draw(image, corners, names, colors, below=True)
    expected = draw(image, corners, [''] * 28, colors)
    np.testing.assert_array_equal(drawn[:360], expected)
    assert drawn.shape[0] - 360 == len(text_plate(LONG, 0.4, 1, RED))
    assert area_of(drawn[360:], (0, 255, 0))[3] < area_of(drawn[360:], RED)[2]  # 'cat', then the long name
    inside = draw(image, corners, names, colors)
    np.testing.assert_array_equal(inside, np.r_[expected[: 720 - len(drawn)], inside[720 - len(drawn) :]])
    np.testing.assert_array_equal(inside[720 - len(drawn) :, :20], drawn[360:, :20])
    scores = draw(image, corners, names, colors, notes=['0.87'] * 28, below=True)
    np.testing.assert_array_equal(scores[:360], draw(image, corners, ['0.87'] * 28, colors))
    few = draw(image, corners[:12], names[:12], colors[:12], below=True)
    assert few.shape == image.shape, 'plates of 12 objects'


@pytest.mark.parametrize('shape', [(96, 128), (30, 300), (20, 20)])
def test_a_legend_on_an_image_leaves_two_thirds_of_it(shape):
    image, count = np.full((*shape, 3), 110, np.uint8), 30
    boxes = np.tile([1, 1, 12, 9], (count, 1)) + np.arange(count)[:, None] % 3
    names, colors = [f'class number {i}' for i in range(count)], [(0, 255, 8 * i) for i in range(count)]
    drawn = draw(image, boxes, names, colors, notes=['0.50'] * count)
    assert drawn.shape == image.shape
    alone = draw(image, boxes, [''] * count, colors, notes=['0.50'] * count)
    upper = -(-2 * shape[0] // 3)
    np.testing.assert_array_equal(drawn[:upper], alone[:upper])
    assert (drawn[upper:] != alone[upper:]).any() == (shape[0] > 50)  # a legend where a row of it fits


def test_plates_leave_small_objects_in_view():
    """An object of 8 pixels above another one: the plate of neither covers it, and its box has a thin line."""
    corners = np.array([[200, 100, 208, 108], [195, 116, 245, 150]])
    drawn = draw(np.zeros((300, 480, 3), np.uint8), corners, ['bird', 'bird'], [RED, (0, 255, 0)])
    assert not drawn[102:107, 202:207].any()
    assert (drawn[100:109, 208] == RED).all()
    assert not (drawn[104, 209:] == RED).all(-1).any()


@pytest.mark.parametrize('shape', [(9, 15), (3, 400), (9, 400), (400, 3), (1, 1)])
def test_names_in_images_smaller_than_them(shape):
    image, box = np.zeros((*shape, 3), np.uint8), np.array([[0, 0, 3, 3]])
    assert draw(image, box, ['a long name'], [RED], notes=['0.87']).shape == image.shape
    below = draw(image, box, ['a long name'], [RED], notes=['0.87'], below=True)
    assert below.shape[1] == image.shape[1]
    assert 10 < len(below) - len(image) < 20


def test_matplotlib_draws_names_of_every_script(no_system_fonts, recwarn):
    """mmdet draws with the family sans-serif."""
    names = names_for_matplotlib(['größe', 'кошка', '红色 x', 'a\x1bb'])
    assert names == ['größe', 'кошка', r'\u7ea2\u8272 x', r'a\x1bb']
    figure = Figure()
    FigureCanvasAgg(figure)
    for name in names:
        figure.text(0.1, 0.1, name, family='sans-serif', parse_math=False)
    figure.canvas.draw()
    assert not [one for one in recwarn if 'Glyph' in str(one.message)]
    assert names_for_matplotlib(['cat', 'dog']) == ['cat', 'dog']
    assert names_for_matplotlib(()) == []
