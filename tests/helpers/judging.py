"""What rules find in a data set."""

from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.discovery import find_splits
from tokennorm.findings import Findings, judging


def judge(root, needed=('train', 'val'), allow=(), **options):
    """The splits of a folder, and the findings of `tokennorm check`."""
    with judging(Findings(allow)) as found:
        splits = find_splits(root, needed)
        inspect_splits(splits, **options)
    return splits, found


def codes(found, where=None, severity=None):
    """The codes of findings in their order, those about a split or of a severity."""
    chosen = (one for one in found if where in (None, one.where) and severity in (None, one.severity))
    return [one.code for one in chosen]


def finding(found, code, where=None):
    """The one finding with a code."""
    (one,) = (one for one in found if one.code == code and where in (None, one.where))
    return one
