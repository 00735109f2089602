"""Drawn boxes: two pixels wide, texts on plates that cover each other as little as possible, names in all scripts."""

import numpy as np
import pytest

from tokennorm import drawing
from tokennorm.drawing import draw, font_for, printable, text_plate

RED = (0, 0, 255)


def test_names_in_other_scripts_leave_a_mark_on_drawings():
    assert [printable(name) for name in ('café', 'Łódź', '猫犬')] == ['cafe', '?odz', '??']


def test_fonts_have_the_characters_of_a_text(monkeypatch):
    own, text = font_for('Waschbär, Œuf, Łódź, енот, ρακούν')
    assert own.endswith('DejaVuSans.ttf')
    assert text == 'Waschbär, Œuf, Łódź, енот, ρακούν'
    glyphs = {'a.ttf': frozenset(map(ord, '浣bc')), 'b.ttf': frozenset(map(ord, '浣熊a'))}
    monkeypatch.setattr(drawing, '_characters', lambda path: glyphs.get(path, frozenset()))
    fonts = [type('Font', (), dict(fname=name, weight=400, style='normal', name=name)) for name in glyphs]
    monkeypatch.setattr('matplotlib.font_manager.fontManager.ttflist', fonts)
    font_for.cache_clear()
    assert font_for('浣熊 a') == ('b.ttf', '浣熊 a')
    assert font_for('浣熊a b') == ('b.ttf', '浣熊a ?')
    font_for.cache_clear()


def test_boxes_are_two_pixels_wide_in_a_black_frame():
    drawn = draw(np.full((100, 100, 3), 128, np.uint8), np.array([[20, 30, 60, 70]]), [''], [RED])
    across = drawn[50, 10:30].tolist()
    assert across.count([0, 0, 255]) == 2 or across.count([0, 0, 255]) == 3  # OpenCV's lines of 2 have 3
    assert across.count([0, 0, 0]) >= 2


def test_a_plate_has_the_color_of_its_box_and_readable_ink():
    for color, ink in ((RED, 255), ((255, 255, 255), 0), ((34, 197, 94), 0)):
        plate = text_plate('dog 0.93', 14, color)
        shades = plate.reshape(-1, 3).tolist()
        assert max(map(tuple, shades), key=lambda one: shades.count(list(one))) == color
        assert [ink] * 3 in shades


@pytest.mark.parametrize('count', [1, 3, 8])
def test_no_text_is_left_out_or_covered(count):
    image = np.zeros((200, 300, 3), np.uint8)
    colors = [(10 * i + 100, 250 - 10 * i, 200) for i in range(count)]
    drawn = draw(image, np.tile([40, 60, 200, 160], (count, 1)), [f'dog 0.{i}' for i in range(count)], colors)
    plates = [text_plate(f'dog 0.{i}', 12, color) for i, color in enumerate(colors)]
    for plate in plates:
        tall, wide = plate.shape[:2]
        windows = np.lib.stride_tricks.sliding_window_view(drawn, (tall, wide, 3))[..., 0, :, :, :]
        assert (windows == plate).all((2, 3, 4)).any()


def test_a_text_is_drawn_in_an_image_smaller_than_it():
    drawn = draw(np.zeros((9, 15, 3), np.uint8), np.array([[2, 2, 8, 8]]), ['a long name'], [RED])
    assert drawn.shape == (9, 15, 3)
    assert (drawn[..., 2] > 0).mean() > 0.9
