"""Data of a study: some classes of an image folder."""

import pytest

from experiments.study.data import prepare_data, take_classes


def test_classes_are_linked_and_checked(tmp_path):
    for split in ('train', 'val'):
        for name in 'abc':
            (tmp_path / 'all' / split / name).mkdir(parents=True)
            (tmp_path / 'all' / split / name / '1.jpg').touch()
    data = {tmp_path / 'two': dict(maker='classes', source=tmp_path / 'all', classes=['a', 'c'])}
    for _ in range(2):  # the second time there is nothing to do
        prepare_data(data)
        assert sorted(path.name for path in (tmp_path / 'two' / 'val').iterdir()) == ['a', 'c']
        assert (tmp_path / 'two' / 'val' / 'c' / '1.jpg').is_file()
    with pytest.raises(FileNotFoundError, match=r'all/train lacks 1 of 2 classes \(d\)'):
        take_classes(tmp_path / 'other', tmp_path / 'all', ['a', 'd'])
    with pytest.raises(ValueError, match=r'two/train also has other classes \(c\); remove that folder'):
        take_classes(tmp_path / 'two', tmp_path / 'all', ['a'])
