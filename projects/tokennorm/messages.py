"""Names in messages: the one that was meant, and lists that may be long."""

import difflib
from collections.abc import Iterable, Sequence


def did_you_mean(name: object, known: Iterable[str], cutoff: float = 0.6) -> str:
    """' (did you mean X?)' with the nearest of the known names, or '' where none is near.

    Args:
        name: What was written.
        known: Names that exist. One of the same letters is nearer than any other.
        cutoff: Least similarity, from 0 to 1, by `difflib`.
    """
    known = list(known)
    same_letters = [candidate for candidate in known if sorted(str(name).lower()) == sorted(candidate.lower())]
    near = same_letters or difflib.get_close_matches(str(name), known, n=1, cutoff=cutoff)
    return f' (did you mean {near[0]}?)' if near else ''


def shorten(names: Sequence[str], most: int = 8) -> str:
    """The first names, 'a, b, c', and how many more there are than `most`."""
    more = f' and {len(names) - most} more' if len(names) > most else ''
    return ', '.join(names[:most]) + more
