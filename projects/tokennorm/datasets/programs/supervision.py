"""supervision: every category has the supercategory `common-objects`, and objects of several pieces are crowds."""

from collections.abc import Mapping

from tokennorm.datasets.coco.entries import Content
from tokennorm.datasets.tally import Tally


def read_pieces(contents: Mapping[str, Content]) -> dict[str, Content]:
    """Makes single objects of those that are marked as crowds."""
    return {split: _with_objects(split, content) for split, content in contents.items()}


def _with_objects(split: str, content: Content) -> Content:
    of_supervision = {one.get('supercategory') for one in content['categories']} == {'common-objects'}
    tally, entries = Tally(split), content.get('annotations', ())
    single = [
        of_supervision and one.get('iscrowd') == 1 and tally('crowd-as-object', f'annotation {one.get("id")}')
        for one in entries
    ]
    tally.report()
    if not any(single):
        return content
    changed = [{**one, 'iscrowd': 0} if chosen else one for one, chosen in zip(entries, single, strict=True)]
    return {**content, 'annotations': changed}
