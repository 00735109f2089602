"""Splits of a folder: subsets of a project, and a class that one split lacks."""

import pytest

from tests.helpers.data_folders import objects
from tests.helpers.judging import finding, judge
from tokennorm.datasets.discovery import find_splits
from tokennorm.datasets.splitting import find_unsplit
from tokennorm.findings import Refusal

CVAT = """<annotations><meta><task><labels><label><name>cat</name></label>
<label><name>night</name><type>tag</type></label></labels></task></meta>
{}</annotations>"""


def test_subsets_of_a_project_of_cvat_are_its_splits(root):
    box = '<box label="cat" xtl="{0}" ytl="{0}" xbr="40" ybr="40" occluded="0" z_order="0"/>'
    entries = [
        f'<image id="{i}" name="{i}.png" subset="{subset}" width="96" height="64">{box.format(10 + i)}</image>'
        for i, subset in enumerate(['Train', 'Train', 'Train', 'Extra', 'Validation', 'Validation'])
    ]
    (root / 'annotations.xml').write_text(CVAT.format(''.join(entries)))
    splits = find_splits(root)
    assert objects(splits['train']).keys() == {'0.png', '1.png', '2.png'}
    assert objects(splits['val'])['5.png'] == (96, 64, ('cat', 15, 15, 25, 25, 625))
    assert len(splits['val'].content['annotations']) == 2
    assert [one['name'] for one in splits['val'].content['categories']] == ['cat']  # no box can be of a tag
    assert finding(judge(root)[1], 'unlisted-image').items == ('3.png', '6.png', '7.png')
    entries.append(entries.pop(0))  # the order of the images is not that of the splits
    (root / 'annotations.xml').write_text(CVAT.format(''.join(entries[::-1])))
    assert list(find_splits(root)) == ['train', 'val']
    one = CVAT.format(''.join(entries[:3]))  # of a task, whose one subset says nothing about its files
    for name in ('train', 'val'):
        (root / f'{name}.xml').write_text(one)
    assert len(find_splits(root)['val'].content['images']) == 3
    (root / 'val.xml').write_text(CVAT.format(''.join(entries))[:-30])
    with pytest.raises(Refusal, match=r'val\.xml cannot be read'):
        find_splits(root)
    with pytest.raises(ValueError, match=r'is divided already, by the subsets of its images: use .* as it is'):
        find_unsplit(root / 'annotations.xml')
