"""Run-length masks of COCO: alternating counts of zeros and ones along the columns, as a list or a packed string."""

from typing import Any

_MOST_DIGITS = 7  # digits of 5 bits in a count of 32 bits


def run_lengths(counts: Any) -> list[int]:
    """Returns the counts of a mask, decoded as pycocotools does.

    A string has digits of 5 bits, lowest first, as characters from '0'. The 6th bit marks that another digit follows,
    and the 5th bit of the last digit is the sign. From the fourth count on, a count is the difference to the count two
    before it. pycocotools reads beyond the end of a string that is cut off; this function raises.
    """
    if isinstance(counts, list):
        if not all(type(count) is int and 0 <= count < 2**32 for count in counts):
            raise ValueError('counts that are not integers of at least 0')
        return counts
    if not isinstance(counts, str):
        raise ValueError('counts that are neither a list nor a string')
    runs: list[int] = []
    value = digits = 0
    for character in counts:
        digit = ord(character) - 48
        if not 0 <= digit < 64 or digits == _MOST_DIGITS:
            raise ValueError('counts that are not packed run lengths')
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
    """Returns the problem of a run-length mask of an image of `size` (height, width), or ''."""
    if mask.get('size') != size:
        return f'size={mask.get("size")!r:.40}, the image is {size}'
    try:
        total = sum(run_lengths(mask.get('counts')))
    except ValueError as error:
        return str(error)
    return '' if total == size[0] * size[1] else f'counts of {total} pixels in all, the image has {size[0] * size[1]}'
