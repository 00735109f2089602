"""Names that are meant when others are written."""

import difflib
from collections.abc import Iterable


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
