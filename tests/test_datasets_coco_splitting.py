"""One annotation file becomes two that have every image once."""

import json

import pytest

from tokennorm.datasets.coco.splitting import split_annotations


@pytest.fixture
def whole(tmp_path):
    content = dict(
        info='kept',
        images=[dict(id=i, file_name=f'{i}.jpg') for i in range(10)],
        annotations=[dict(id=j, image_id=j % 10) for j in range(30)],
        categories=[dict(id=1, name='cell')],
    )
    path = tmp_path / 'instances_default.json'
    path.write_text(json.dumps(content))
    return path


def test_every_image_is_in_one_part_with_its_annotations(whole):
    files = split_annotations(whole, 0.3, seed=0)
    parts = {name: json.loads(path.read_text()) for name, path in files.items()}
    ids = {name: {image['id'] for image in part['images']} for name, part in parts.items()}
    assert (len(ids['train']), len(ids['val'])) == (7, 3)
    assert ids['train'] | ids['val'] == set(range(10))
    for name, part in parts.items():
        assert {a['image_id'] for a in part['annotations']} == ids[name]
        assert len(part['annotations']) == 3 * len(ids[name])
        assert part['info'] == 'kept'
        assert part['categories'] == [dict(id=1, name='cell')]


def test_the_seed_decides(whole, tmp_path):
    def val_of(seed):
        files = split_annotations(whole, 0.5, seed)
        images = json.loads(files['val'].read_text())['images']
        for path in files.values():
            path.unlink()
        return images

    assert val_of(1) == val_of(1) != val_of(2)


def test_nothing_is_overwritten_and_no_part_is_empty(whole):
    with pytest.raises(ValueError, match='leaves a split without images'):
        split_annotations(whole, 0.01, seed=0)
    split_annotations(whole, 0.2, seed=0)
    with pytest.raises(FileExistsError, match=r'train.json already exists'):
        split_annotations(whole, 0.2, seed=0)
    with pytest.raises(FileExistsError, match=r'train.json would be overwritten; rename it first'):
        split_annotations(whole.with_name('train.json'), 0.2, seed=0)
