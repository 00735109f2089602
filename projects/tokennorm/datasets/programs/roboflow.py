"""Roboflow: the first category of its COCO export, id 0, is the group of all others, with the name of the project."""

from collections.abc import Mapping

from tokennorm.datasets.coco.entries import Content, id_text, name_of
from tokennorm.findings import reports


def leave_out_group(contents: Mapping[str, Content]) -> dict[str, Content]:
    """Leaves the group out, which no annotation has and which is the supercategory of others."""
    of_project = [split for split, content in contents.items() if _has_group(content)]
    if not of_project or not all(map(_group_is_unused, contents.values())):
        return dict(contents)
    names = {split: name_of(contents[split]['categories'][0]) for split in of_project}
    if not all([reports('category-group', split, items=[name]) for split, name in names.items()]):
        return dict(contents)
    others = {split: contents[split]['categories'][1:] for split in of_project}
    return {
        split: {**content, 'categories': others.get(split, content['categories'])}
        for split, content in contents.items()
    }


def _has_group(content: Content) -> bool:
    first, *others = content['categories'] or [{}]
    of_group = [one.get('supercategory') == first.get('name') for one in others]
    return id_text(first.get('id')) == '0' and first.get('supercategory') == 'none' and any(of_group)


def _group_is_unused(content: Content) -> bool:
    return all(id_text(one.get('category_id')) != '0' for one in content.get('annotations', ()))
