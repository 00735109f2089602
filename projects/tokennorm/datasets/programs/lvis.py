"""LVIS: its images have `coco_url` instead of `file_name`."""

from collections.abc import Mapping

from tokennorm.datasets.coco.entries import Content


def use_urls(contents: Mapping[str, Content]) -> dict[str, Content]:
    """Takes the URL for the name of the file, which is found by its end."""
    return {split: _with_names(content) for split, content in contents.items()}


def _with_names(content: Content) -> Content:
    needs_name = [one for one in content['images'] if 'coco_url' in one and 'file_name' not in one]
    if not needs_name:
        return content
    images = [{'file_name': one['coco_url'], **one} if 'coco_url' in one else one for one in content['images']]
    return {**content, 'images': images}
