"""Run-length masks of COCO: alternating counts of zeros and ones along the columns, as a list or a packed string."""

import re
from typing import Any

# Counts of up to 7 digits of 5 bits, lowest first, as characters from '0'; the 6th bit marks that another one follows.
_PACKED = re.compile('([P-o]{0,6}[0-O])*')


def run_lengths(counts: list[Any] | str) -> list[int]:
    """Returns the counts of a mask, decoded as pycocotools does. Other counts raise `ValueError`.

    The 5th bit of the last digit is the sign. From the fourth count on, a count is the difference to the count two
    before it. pycocotools reads beyond the end of a string that is cut off.
    """
    if isinstance(counts, list):
        if not all(type(count) is int and 0 <= count < 2**32 for count in counts):
            raise ValueError('counts that are not integers of at least 0')
        return counts
    if not _PACKED.fullmatch(counts):
        raise ValueError('counts that are not packed run lengths, or are cut off')
    runs: list[int] = []
    value = shift = 0
    for byte in counts.encode():
        digit = byte - 48
        value |= (digit & 31) << shift
        shift += 5
        if digit & 32:
            continue
        if digit & 16:
            value -= 1 << shift
        if len(runs) > 2:
            value += runs[-2]
        if not 0 <= value < 2**32:
            raise ValueError('counts below 0')
        runs.append(value)
        value = shift = 0
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
