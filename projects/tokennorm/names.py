"""Names that are meant when others are written."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str], cutoff: float = 0.6) -> str:
    """' (did you mean X?)' with the nearest of the known names, or '' where none is near.

    Args:
        name: What was written; anything but a string is near to nothing.
        known: Names that exist.
        cutoff: Least similarity, from 0 to 1, by `difflib`.
    """
    known = list(known)
    same = [candidate for candidate in known if str(name).lower() == candidate.lower()]
    near = same or (difflib.get_close_matches(name, known, n=1, cutoff=cutoff) if isinstance(name, str) else [])
    return f' (did you mean {near[0]}?)' if near else ''
