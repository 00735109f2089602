"""Open Images: a CSV file of boxes as fractions of the images, and class-descriptions*.csv near it."""

from collections.abc import Sequence
from pathlib import Path

from tokennorm.datasets.coco.entries import Content
from tokennorm.datasets.programs.reader import Reader, convert, head

_COLUMNS = {'ImageID', 'LabelName', 'XMin'}


def find(near: Sequence[Path], _: Sequence[Path]) -> list[Path]:
    """Returns the CSV files with its columns."""
    paths = (path for path in near if path.suffix.lower() == '.csv')
    return [path for path in paths if set(head(path).partition('\n')[0].split(',')) >= _COLUMNS]


def read(path: Path, split: str, images: Path | None) -> Content:
    """Reads boxes; the names of the images have no suffix. Groups of objects become crowds."""
    import hotcoco

    names = next((one for folder in path.parents[:2] for one in folder.glob('*class-descriptions*.csv')), None)
    options = dict(class_descriptions=names and str(names), images_dir=images and str(images))
    content = convert(split, path, hotcoco.COCO.from_oid, str(path), **options)
    for one in content['annotations']:
        one['iscrowd'] = int(bool(one.get('iscrowd') or one.get('is_group_of')))
    return content


READER = Reader('Open Images', find, read, needs_images=True)
