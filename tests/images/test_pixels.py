"""Every format has the same pixels for training, prediction and the Python API, upright and in 8 bits."""

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from tokennorm.datasets.image_files import open_image
from tokennorm.images.pixels import (
    CV_LOG,
    FRAMES,
    PAGES,
    ImageError,
    as_pixels,
    decode,
    left_out,
    read_image,
    silent_opencv,
)

COLOR = np.zeros((16, 24, 3), np.uint8)
COLOR[:8, :8] = 200, 40, 30  # RGB; the corner at the top left
DEPTH = np.full((16, 24), 990, np.uint16)
DEPTH[:8, :8] = 4000  # of 4095


def encoded(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize('kind', ['JPEG', 'MPO', 'PNG', 'TIFF', 'WEBP', 'AVIF'])
@pytest.mark.parametrize(('orientation', 'corner'), [(1, (0, 0)), (3, (-1, -1)), (6, (0, -1)), (8, (-1, 0))])
def test_exif_orientation_of_every_format(kind, orientation, corner):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(Image.fromarray(COLOR).resize((96, 64), 0), kind, exif=exif, quality=95)
    for pixels in (decode(content), as_pixels(Image.open(io.BytesIO(content)))):
        assert pixels.shape == ((64, 96, 3) if orientation < 5 else (96, 64, 3))
        assert pixels[corner].tolist() == pytest.approx([30, 40, 200], abs=20)


FORMATS = {  # image, format, BGR at the corner and at the opposite one
    'JPEG 2000': (Image.fromarray(COLOR), 'JPEG2000', (30, 40, 200), (0, 0, 0)),
    'GIF': (Image.fromarray(COLOR), 'GIF', (30, 40, 200), (0, 0, 0)),
    'palette': (Image.fromarray(COLOR).quantize(4), 'PNG', (30, 40, 200), (0, 0, 0)),
    'alpha': (Image.fromarray(np.dstack([COLOR, 0 * COLOR[..., :1]])), 'PNG', (30, 40, 200), (0, 0, 0)),
    'alpha in TIFF': (Image.fromarray(np.dstack([COLOR, COLOR[..., 2] // 2])), 'TIFF', (30, 40, 200), (0, 0, 0)),
    'CMYK': (Image.fromarray(COLOR).convert('CMYK'), 'TIFF', (30, 40, 200), (0, 0, 0)),
    'gray with alpha': (Image.fromarray(COLOR[..., 0]).convert('LA'), 'PNG', (200, 200, 200), (0, 0, 0)),
    '1 bit': (Image.fromarray(COLOR[..., 0] > 9), 'PNG', (255, 255, 255), (0, 0, 0)),
    '12 of 16 bits': (Image.fromarray(DEPTH), 'PNG', (249,) * 3, (62,) * 3),  # 249.1 and 61.6: 4000 and 990 of 4095
    '16 bits': (Image.fromarray(DEPTH * 16), 'TIFF', (249,) * 3, (62,) * 3),
    'float of 1': (Image.fromarray(DEPTH / np.float32(4000)), 'TIFF', (255,) * 3, (63,) * 3),
    'float above 1': (Image.fromarray(DEPTH / np.float32(3900)), 'TIFF', (255,) * 3, (65,) * 3),
    'float of 2': (Image.fromarray(DEPTH / np.float32(2000)), 'TIFF', (255,) * 3, (126,) * 3),
    'float of 10': (Image.fromarray(DEPTH / np.float32(400)), 'TIFF', (10,) * 3, (2,) * 3),
    'float of 255': (Image.fromarray(DEPTH / np.float32(20)), 'TIFF', (200,) * 3, (50,) * 3),
    'negative float': (Image.fromarray(DEPTH.astype(np.float32) / 2000 - 1), 'TIFF', (255,) * 3, (63,) * 3),
}


@pytest.mark.parametrize('name', FORMATS)
def test_pixels_of_a_path_and_of_a_pil_image(name, tmp_path, capfd):
    image, kind, corner, opposite = FORMATS[name]
    path = tmp_path / 'image'
    path.write_bytes(encoded(image, kind))
    pixels = read_image(path)
    assert (pixels.shape, pixels.dtype) == ((16, 24, 3), np.uint8)
    lossy = 0 if np.asarray(image).ndim == 2 else 3
    assert pixels[0, 0].tolist() == pytest.approx(corner, abs=lossy)
    assert pixels[-1, -1].tolist() == pytest.approx(opposite, abs=lossy)
    np.testing.assert_array_equal(as_pixels(Image.open(path)), pixels)
    loaded = Image.open(path)
    loaded.load()
    assert np.abs(as_pixels(loaded).astype(int) - pixels).max() <= 3
    assert capfd.readouterr().err == ''


@pytest.mark.parametrize('most', [-20, 0])
@pytest.mark.parametrize('dtype', [np.float32, np.int16])
def test_negative_values_only_are_refused(tmp_path, dtype, most):
    cv2.imwrite(str(tmp_path / 'decibels.tif'), np.linspace(-30, most, 64).reshape(8, 8).astype(dtype))
    problem = open_image(tmp_path / 'decibels.tif').problem
    assert problem.startswith('that cannot be used (it has no value above 0, such as')
    with pytest.raises(ImageError, match=r'decibels.tif cannot be read: it has no value above 0'):
        read_image(tmp_path / 'decibels.tif')


VALUES = {  # the values of two pixels, their type, and the gray levels of both
    'CT': ((-1000, 3000), np.int16, (1, 200)),  # of -1024 to 4095
    'CT of floats': ((-1000, 3000), np.float32, (1, 200)),
    'bytes with a sign': ((-100, 100), np.int8, (19, 152)),  # of -128 to 255
    '32 bits': ((-100_000, 400_000), np.int32, (15, 255)),
    'positive, with a sign': ((0, 20_000), np.int16, (0, 78)),
    'a little below 0': ((-5, 4000), np.int16, (0, 249)),
    'standardized': ((-2, 3), np.float32, (0, 213)),  # of -2 to 4
    '-1 to 1': ((-1, 0.5), np.float32, (0, 191)),
}


def test_unsigned_32_bits_have_no_sign(tmp_path):
    (tmp_path / 'image.tif').write_bytes(tiff(np.array([[0, 2**31, 2**32 - 1]], np.uint32)))
    with Image.open(tmp_path / 'image.tif') as image:
        image.load()
        assert as_pixels(image)[0, :, 0].tolist() == [0, 128, 255]
    assert read_image(tmp_path / 'image.tif')[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize('mark', [np.nan, np.inf, *np.array([np.finfo(np.float32).min, np.finfo(np.float32).max])])
def test_pixels_without_a_value_leave_the_others_as_they_are(mark):
    image = np.array([[mark, 0, 100, 255]], np.float32)
    assert decode(cv2.imencode('.tif', image)[1].tobytes())[0, :, 0].tolist() == [0, 0, 100, 255]


@pytest.mark.parametrize(
    ('dtype', 'mark', 'values', 'levels'),
    [
        (np.float32, -9999, [0, 0.5, 1], [0, 0, 128, 255]),
        (np.float32, -3e6, [0, 100, 255], [0, 0, 100, 255]),
        (np.float32, -9999, [-8, 0, 8], [128, 0, 128, 255]),  # degrees
        (np.int16, -32768, [200, 400, 1023], [0, 50, 100, 255]),  # meters
        (np.float32, -1024, [-1000, 0, 2048], None),  # air around a scan
        (np.float32, -9999, [-9000, 0, 1], None),
    ],
)
def test_a_number_far_below_all_others_marks_pixels_without_a_value(dtype, mark, values, levels):
    image, notes = np.array([[mark, *values]], dtype), []
    pixels = decode(cv2.imencode('.tif', image)[1].tobytes(), notes.append)[0, :, 0].tolist()
    if levels is None:
        assert notes == []
        assert pixels[0] < pixels[1]
    else:
        assert notes == [f'pixels of {mark:.6g} as 0']
        assert pixels == levels


@pytest.mark.parametrize('name', VALUES)
def test_the_whole_range_of_values_below_0_is_kept(name):
    values, dtype, levels = VALUES[name]
    image, notes = np.full((8, 8), values[0], dtype), []
    image[:, 4:] = values[1]
    pixels = decode(cv2.imencode('.tif', image)[1].tobytes() if dtype != np.int8 else tiff(image), notes.append)
    assert [pixels[0, 0].tolist(), pixels[0, -1].tolist()] == [[levels[0]] * 3, [levels[1]] * 3]
    assert notes == []


def tiff(image):
    stream = io.BytesIO()
    pytest.importorskip('tifffile').imwrite(stream, image)
    return stream.getvalue()


COPY = Image.fromarray(COLOR[::-1].copy())
PARTS = {  # image, format, and what is said of it
    'above white': (Image.fromarray(DEPTH / np.float32(3600)), 'TIFF', ['values from 0.275 to 1.11 cut at 0 and 1']),
    'resampled': (
        Image.fromarray(DEPTH / np.float32(3010) - np.float32(0.4)),
        'TIFF',
        ['values from -0.0711 to 0.929 cut at 0 and 1'],
    ),
    'rounded': (Image.fromarray(DEPTH / np.float32(3999)), 'TIFF', []),
    'NaN': (
        Image.fromarray(np.where(DEPTH > 990, np.nan, DEPTH / 4000).astype(np.float32)),
        'TIFF',
        ['NaN, infinity and values beyond 1e37 as 0'],
    ),
    'GeoTIFF without values': (
        Image.fromarray(np.where(DEPTH > 990, np.finfo(np.float32).min, DEPTH / 4000).astype(np.float32)),
        'TIFF',
        ['NaN, infinity and values beyond 1e37 as 0'],
    ),
    **{kind: (Image.fromarray(COLOR), kind, []) for kind in ('GIF', 'WEBP', 'PNG', 'AVIF', 'TIFF', 'JPEG')},
    **{f'animated {kind}': (Image.fromarray(COLOR), kind, [FRAMES]) for kind in ('GIF', 'WEBP', 'PNG', 'AVIF')},
    'animated TIFF': (Image.fromarray(COLOR), 'TIFF', [PAGES]),
    'animated MPO': (Image.fromarray(COLOR), 'MPO', []),  # phones write a preview or a depth
}


@pytest.mark.parametrize('name', PARTS)
def test_what_is_cut_or_left_out_is_said(name, tmp_path):
    image, kind, expected = PARTS[name]
    options = dict(save_all=True, append_images=[COPY.copy()]) if name.startswith('animated') else {}
    path, notes = tmp_path / 'image', []
    path.write_bytes(encoded(image.copy(), kind, **options))
    np.testing.assert_array_equal(read_image(path, notes.append), read_image(path))
    assert notes == expected
    assert list(open_image(path).left_out) == expected


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        (dict(channels=5), ['3 of 5 channels']),
        (dict(channels=4, extrasamples=['unspecified']), ['3 of 4 channels']),
        (dict(channels=4, extrasamples=['unassalpha']), []),
        (dict(channels=2, photometric='minisblack'), ['1 of 2 channels']),
        (dict(channels=4, photometric='minisblack', extrasamples=['unassalpha'] + 2 * [0]), ['1 of 4 channels']),
        (dict(channels=2, photometric='minisblack', extrasamples=['unassalpha']), []),
        (dict(channels=3, bigtiff=True), []),
        (dict(channels=3, pages=2, bigtiff=True), [PAGES]),
        (dict(channels=3, pages=2, byteorder='>'), [PAGES]),
    ],
)
def test_channels_and_pages_of_tiff(options, expected):
    tifffile, stream = pytest.importorskip('tifffile'), io.BytesIO()
    channels, pages = options.pop('channels'), options.pop('pages', 1)
    options = dict(photometric='rgb', planarconfig='contig') | options
    tifffile.imwrite(stream, np.zeros((pages, 16, 24, channels), np.uint8), **options)
    assert left_out(stream.getvalue()) == expected


def test_smaller_copies_in_a_tiff_are_not_pages():
    tifffile, stream = pytest.importorskip('tifffile'), io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        writer.write(COLOR, photometric='rgb')
        writer.write(COLOR[::2, ::2], photometric='rgb', subfiletype=1)
    assert left_out(stream.getvalue()) == []


def test_a_draft_of_pillow_has_its_own_size(tmp_path):
    path = tmp_path / 'a.jpg'
    Image.new('RGB', (512, 384), (9, 9, 9)).save(path)
    with Image.open(path) as image:
        image.draft('RGB', (128, 96))
        assert as_pixels(image).shape[:2] == image.size[::-1] == (96, 128)


@pytest.mark.parametrize('kind', ['JPEG', 'PNG', 'WEBP', 'TIFF'])
def test_files_that_end_early_are_refused(kind, tmp_path):
    content = encoded(Image.effect_noise((64, 64), 60).convert('RGB'), kind)
    (tmp_path / 'cut').write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(ImageError, match='cut cannot be read: it cannot be decoded'):
        read_image(tmp_path / 'cut')


def test_threads_that_read_leave_the_log_level_of_opencv():
    """The first of overlapping threads turns the log off, and the last puts the level back."""
    level, steps = CV_LOG.getLogLevel(), [silent_opencv() for _ in range(3)]
    steps[0].__enter__()
    steps[1].__enter__()
    steps[0].__exit__(None, None, None)
    steps[2].__enter__()
    assert CV_LOG.getLogLevel() == 0
    steps[1].__exit__(None, None, None)
    assert CV_LOG.getLogLevel() == 0
    steps[2].__exit__(None, None, None)
    assert CV_LOG.getLogLevel() == level > 0
