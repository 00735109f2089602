"""WebDataset shards: the samples of a folder in its order, with one rank and two, and errors that name the shard."""

import io
import json
import tarfile
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine import Config
from mmengine.fileio import get
from mmpretrain.datasets import CustomDataset

from experiments.imagenet_shards.dataset import ShardDataset
from experiments.imagenet_shards.shards import INDEX, count_classes
from experiments.imagenet_shards.write_shards import main as write_shards

CONFIG = Path(__file__).resolve().parents[2] / 'projects/experiments/imagenet_shards/configs/pvt-tiny-dtn_shards.py'
COUNTS = dict(train=dict(ant=3, bee=5, cat=2), val=dict(ant=1, bee=1, cat=2))
PIPELINE = [dict(type='LoadImageFromFile'), dict(type='RandomFlip', prob=0.5), dict(type='PackInputs')]


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """Images of noise in class folders, and their shards of two images: each image takes 2,048 bytes of a tar file."""
    root = tmp_path_factory.mktemp('images')
    rng = np.random.default_rng(0)
    for split, counts in COUNTS.items():
        for name, count in counts.items():
            for i in range(count):
                path = root / 'folder' / split / name / 'sub' / f'{i}.some.PNG'
                path.parent.mkdir(parents=True, exist_ok=True)
                cv2.imwrite(str(path), rng.integers(0, 256, (8, 8, 3), np.uint8))
    write_shards([str(root / 'folder'), str(root / 'shards'), '--shard-size', '0.004'])
    return root


def datasets(root, split):
    folder = CustomDataset(data_prefix=str(root / 'folder' / split), extensions=('.png',), pipeline=PIPELINE[:1])
    return folder, ShardDataset(data_root=str(root / 'shards'), split=split, pipeline=PIPELINE[:1])


@pytest.mark.parametrize('split', COUNTS)
def test_a_folder_and_its_shards_have_equal_samples_in_order(folders, split):
    folder, shards = datasets(folders, split)
    assert len(folder) == len(shards) == sum(COUNTS[split].values())
    assert folder.metainfo['classes'] == shards.metainfo['classes'] == ('ant', 'bee', 'cat')
    for i in range(len(folder)):
        assert folder[i]['gt_label'] == shards[i]['gt_label']
        assert np.array_equal(folder[i]['img'], shards[i]['img'])
        assert get(shards[i]['img_path']) == Path(folder[i]['img_path']).read_bytes()


def test_the_config_reads_shards():
    cfg = Config.fromfile(CONFIG)
    assert {split: cfg[f'{split}_dataloader'].dataset.split for split in ('train', 'val', 'test')} == dict(
        train='train', val='val', test='val'
    )
    assert {cfg[f'{split}_dataloader'].dataset.type for split in ('train', 'val', 'test')} == {'tokennorm.ShardDataset'}


def copy(folders, tmp_path):
    """A writable copy of the training shards."""
    out = tmp_path / 'train'
    out.mkdir()
    for path in (folders / 'shards' / 'train').iterdir():
        (out / path.name).write_bytes(path.read_bytes())
    return out


def test_bad_shards_are_named_before_training(folders, tmp_path):
    folder = copy(folders, tmp_path)
    shard = folder / '000004.tar'
    content = shard.read_bytes()
    shard.write_bytes(content[:-600])
    with pytest.raises(ValueError, match=rf'000004\.tar is {len(content) - 600} bytes, expected {len(content)} bytes'):
        ShardDataset(data_prefix=str(folder))
    shard.write_bytes(content[:700])
    with pytest.raises(SystemExit, match=r'000004\.tar is not a complete, uncompressed WebDataset shard'):
        write_shards([str(folder)])
    shard.write_bytes(content)
    (folder / INDEX).unlink()
    with pytest.raises(FileNotFoundError, match=r'index\.json not found: write it with `python .*/write_shards\.py'):
        count_classes(folder)


def test_shards_of_other_programs_get_an_index(tmp_path, capsys):
    def write(name, members):
        with tarfile.open(tmp_path / name, 'w') as tar:
            for key, content in members.items():
                info = tarfile.TarInfo(key)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))

    write('b.tar', {'x/1.cls': b'2', 'x/1.json': b'{}', 'x/1.jpg': b'first'})
    write('a.tar', {'1.jpeg': b'second', '1.cls': b'0\n'})
    write_shards([str(tmp_path)])
    assert f'{tmp_path}: 2 images of 3 classes in 2 shards' in capsys.readouterr().out
    assert count_classes(tmp_path) == {'0': 1, '1': 0, '2': 1}
    dataset = ShardDataset(data_prefix=str(tmp_path))
    assert [(get(s['img_path']), s['gt_label']) for s in map(dataset.get_data_info, range(2))] == [
        (b'second', 0),
        (b'first', 2),
    ]
    write('c.tar', {'5.png': b''})
    with pytest.raises(SystemExit, match=r'c\.tar: 5\.png has no label'):
        write_shards([str(tmp_path)])
    assert list(json.loads((tmp_path / INDEX).read_text())['shards']) == ['a.tar', 'b.tar']
