"""Run-length masks of COCO: counts of zeros and ones in turn, down the columns, as a list or packed into a string."""

from typing import Any

_MOST_DIGITS = 7  # of 5 bits; counts are 32-bit numbers


def run_lengths(counts: Any) -> list[int]:
    """The counts of a mask, read as pycocotools reads them.

    In a string each count from the fourth on is the difference to that two before it, in digits of 5 bits, the lowest
    first, as characters from '0' on; the 6th bit says that a digit follows, and the 5th of the last one is the sign.
    (pycocotools itself reads beyond the end of a string that is cut off.)

    Raises:
        ValueError: for counts that are not whole numbers, or negative, and for a string that is none of these.
    """
    if isinstance(counts, list):
        if not all(type(count) is int and 0 <= count < 2**32 for count in counts):
            raise ValueError('counts that are not whole numbers of at least 0')
        return counts
    if not isinstance(counts, str):
        raise ValueError('counts that are neither a list nor a string')
    runs: list[int] = []
    value = digits = 0
    for character in counts:
        digit = ord(character) - 48
        if not 0 <= digit < 64 or digits == _MOST_DIGITS:
            raise ValueError('counts that are no packed run lengths')
        value |= (digit & 31) << 5 * digits
        digits += 1
        if digit & 32:
            continue
        if digit & 16:
            value -= 1 << 5 * digits
        if len(runs) > 2:
            value += runs[-2]
        if not 0 <= value < 2**32:
            raise ValueError('counts below 0')
        runs.append(value)
        value = digits = 0
    if digits:
        raise ValueError('counts that are cut off')
    return runs


def rle_problem(mask: dict[str, Any], size: list[int]) -> str:
    """What is wrong with a run-length mask of an image of `size` (height, width); '' where nothing is."""
    if mask.get('size') != size:
        return f'size={mask.get("size")!r:.40}, the image is {size}'
    try:
        total = sum(run_lengths(mask.get('counts')))
    except ValueError as error:
        return str(error)
    return '' if total == size[0] * size[1] else f'counts of {total} pixels in all, the image has {size[0] * size[1]}'
