"""Messages: the nearest name, shortened lists, and errors in one line."""

import pytest

from tokennorm.base.messages import UserError, counted, did_you_mean, in_python, shorten, user_errors
from tokennorm.images.pixels import ImageError


@pytest.mark.parametrize(
    ('name', 'known', 'hint'),
    [
        ('DNT', ['DNA', 'DTN', 'DN'], ' (did you mean DTN?)'),  # an anagram, although others are as near
        ('retinanet', ['retinanets', 'fcos'], ' (did you mean retinanets?)'),
        ('layer_norm', ['LN', 'DTN'], ''),
        (5, ['4', '5'], ' (did you mean 5?)'),
    ],
)
def test_the_nearest_name(name, known, hint):
    assert did_you_mean(name, known) == hint


def test_lists_are_shortened():
    names = [f'n{i}' for i in range(10)]
    assert shorten(names[:8]) == 'n0, n1, n2, n3, n4, n5, n6, n7'
    assert shorten(names) == 'n0, n1, n2, n3, n4, n5, n6, n7 and 2 more'
    assert shorten(names, 1) == 'n0 and 9 more'
    assert shorten([]) == ''


@pytest.mark.parametrize(
    ('number', 'noun', 'text'),
    [(1, 'image', '1 image'), (0, 'image', '0 images'), (1, 'class', '1 class'), (1234567, 'class', '1234567 classes')]
    + [(1.0, 'epoch', '1 epoch'), (0.5, 'epoch', '0.5 epochs')],
)
def test_numbers_of_things(number, noun, text):
    assert counted(number, noun) == text


def test_errors_of_these_kinds_become_user_errors():
    with pytest.raises(UserError, match=r'^--data: no such folder$') as found, user_errors(OSError, where='--data: '):
        raise OSError('no such folder')
    assert isinstance(found.value.__cause__, OSError)
    for error in (UserError('as it is'), BrokenPipeError('closed'), KeyError('fault')):
        with pytest.raises(type(error)) as found, user_errors(OSError, where='--data: '):
            raise error
        assert found.value is error


def test_errors_of_python_calls_name_keyword_arguments():
    @in_python
    def train(image_size, allow=()):
        raise UserError('--image-size 3: expected 32; --allow-all, `tokennorm rules --allow`, --lr or --allow a-b')

    with pytest.raises(UserError) as found:
        train(3)
    assert str(found.value) == ('image_size 3: expected 32; --allow-all, `tokennorm rules --allow`, --lr or allow a-b')
    with pytest.raises(UserError, match=r'^--image-size 3'):
        train.__wrapped__(3)


def test_user_errors_of_a_kind_have_their_place():
    with pytest.raises(UserError, match=r'^--verify: bad image$'), user_errors(ImageError, where='--verify: '):
        raise ImageError('bad image')
    with pytest.raises(ImageError, match=r'^bad image$'), user_errors(ValueError):
        raise ImageError('bad image')
    with pytest.raises(UserError, match=r'^other$'), user_errors(ImageError, where='--verify: '):
        raise UserError('other')
