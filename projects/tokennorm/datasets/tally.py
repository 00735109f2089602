"""Collects what rules find entry by entry, for one finding per rule."""

from collections import defaultdict

from tokennorm.findings import current, reports


class Tally:
    """The entries of a split that rules are about.

    if tally('repeated-object', 'annotation 7'):
        ...  # leave it out: the rule is in force
    tally.report()
    """

    def __init__(self, split: str) -> None:
        self.split = split
        self._items: dict[tuple[str, str], list[str]] = defaultdict(list)

    def __call__(self, code: str, item: str, text: str = '') -> bool:
        """Notes an entry, and returns whether the rule is in force. The text is by default the rule's summary."""
        self._items[code, text].append(item)
        return code not in current().allowed

    def report(self) -> None:
        """Reports what was noted, one finding per rule and text."""
        for (code, text), items in self._items.items():
            reports(code, self.split, text, items)
        self._items.clear()
