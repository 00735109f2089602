"""WebDataset shards: the samples of a folder in its order, with one rank and two, and errors that name the shard."""

import io
import json
import tarfile
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine import Config
from mmengine.fileio import get
from mmengine.runner import Runner
from mmpretrain.datasets import CustomDataset
from torch import distributed as torch_dist

from tests.helpers.commands import tool
from tests.helpers.processes import end, in_two_processes, start
from tokennorm.datasets.image_folder import find_image_folder
from tokennorm.datasets.shard_dataset import ShardDataset
from tokennorm.datasets.shards import INDEX, count_classes, write_index
from tokennorm.engine.data import use_image_folder
from tokennorm.engine.hooks.data_errors import DataError, prepare_data
from tokennorm.engine.resume.sampler import seed_samples

IMAGENET = Path(__file__).resolve().parents[1] / 'configs' / 'imagenet' / 'pvt-tiny_8xb128_in1k.py'
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
    tool('write_shards')([str(root / 'folder'), str(root / 'shards'), '--shard-size', '0.004'])
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


def test_shards_follow_the_convention_of_webdataset(folders):
    paths = sorted((folders / 'shards' / 'train').glob('*.tar'))
    assert [path.name for path in paths] == [f'{i:06d}.tar' for i in range(5)]
    with tarfile.open(paths[1]) as tar:
        assert tar.getnames() == ['00000002.png', '00000002.cls', '00000003.png', '00000003.cls']
        assert tar.extractfile('00000003.cls').read() == b'1'


def test_data_takes_shards_as_it_takes_folders(folders):
    splits = find_image_folder(folders / 'shards')
    assert {name: split.counts for name, split in splits.items()} == COUNTS
    cfg = Config.fromfile(IMAGENET)
    use_image_folder(cfg, splits)
    for name, folder in (('train', 'train'), ('val', 'val'), ('test', 'val')):
        dataset = cfg[f'{name}_dataloader'].dataset
        assert (dataset.type, dataset.data_prefix) == ('tokennorm.ShardDataset', str(folders / 'shards' / folder))
        assert dataset.metainfo.classes == ('ant', 'bee', 'cat')


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
    with pytest.raises(ValueError, match=r'000004\.tar is not a complete, uncompressed WebDataset shard'):
        write_index(folder)
    shard.unlink()
    with pytest.raises(ValueError, match=r'000004\.tar is missing, expected'):
        find_image_folder(tmp_path, needed=('train',))
    shard.write_bytes(content)
    (folder / 'later.tar').write_bytes(content)
    with pytest.raises(ValueError, match=r'index\.json does not list later\.tar: write it again with `python tools/'):
        find_image_folder(tmp_path, needed=('train',))
    (folder / INDEX).unlink()
    with pytest.raises(FileNotFoundError, match=r'index\.json not found: write it with `python tools/write_shards\.py'):
        find_image_folder(tmp_path, needed=('train',))
    with pytest.raises(ValueError, match=r'train has the classes ant, bee, cat, expected bee, ant, cat'):
        ShardDataset(data_prefix=str(folders / 'shards' / 'train'), metainfo=dict(classes=('bee', 'ant', 'cat')))


def test_bad_images_are_named_with_their_shard(folders, tmp_path):
    folder = copy(folders, tmp_path)
    dataset = ShardDataset(data_prefix=str(folder), pipeline=PIPELINE[:1])
    shard = folder / '000002.tar'
    content = shard.read_bytes()
    shard.write_bytes(content[:512] + bytes(len(content) - 512))
    with pytest.raises(DataError, match=r'000002\.tar\?512\+\d+&00000004\.png or its annotations cannot be read'):
        prepare_data(dataset, 4)
    (folder / '000003.tar').write_bytes(b'')
    with pytest.raises(DataError, match=r'000003\.tar ends before byte \d+: copy the shard again'):
        prepare_data(dataset, 7)


def test_shards_of_other_programs_get_an_index(tmp_path, capsys):
    def write(name, members):
        with tarfile.open(tmp_path / name, 'w') as tar:
            for key, content in members.items():
                info = tarfile.TarInfo(key)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))

    write('b.tar', {'x/1.cls': b'2', 'x/1.json': b'{}', 'x/1.jpg': b'first'})
    write('a.tar', {'1.jpeg': b'second', '1.cls': b'0\n'})
    tool('write_shards')([str(tmp_path)])
    assert f'{tmp_path}: 2 images of 3 classes in 2 shards' in capsys.readouterr().out
    assert count_classes(tmp_path) == {'0': 1, '1': 0, '2': 1}
    dataset = ShardDataset(data_prefix=str(tmp_path))
    assert [(get(s['img_path']), s['gt_label']) for s in map(dataset.get_data_info, range(2))] == [
        (b'second', 0),
        (b'first', 2),
    ]
    write('c.tar', {'5.png': b''})
    with pytest.raises(SystemExit, match=r'c\.tar: 5\.png has no label'):
        tool('write_shards')([str(tmp_path)])
    assert list(json.loads((tmp_path / INDEX).read_text())['shards']) == ['a.tar', 'b.tar']


def batches_of(kind, root, skipped=0):
    """Labels and pixels of the batches that this rank gets, in its resumable order."""
    torch.manual_seed(0)
    loader = Runner.build_dataloader(
        dict(
            num_workers=0,
            collate_fn=dict(type='default_collate'),
            batch_size=2,
            batch_sampler=dict(type='tokennorm.ResumableBatchSampler'),
            sampler=dict(type='DefaultSampler', shuffle=True, seed=7),
            dataset=dict(type=kind, data_prefix=root, pipeline=PIPELINE, _scope_='mmpretrain'),
        ),
        seed=7,
    )
    seed_samples(loader, 7)
    if skipped:
        loader.batch_sampler.skip(skipped)
    return [(torch.cat([s.gt_label for s in batch['data_samples']]), batch['inputs']) for batch in loader]


def compare_in_two_ranks(rank, root):
    """One of the ranks: shards give the batches of the folder, whole and resumed; both ranks give each image once."""
    start(rank, root)
    folder = batches_of('mmpretrain.CustomDataset', f'{root}/folder/train')
    shards = batches_of('tokennorm.ShardDataset', f'{root}/shards/train')
    resumed = batches_of('tokennorm.ShardDataset', f'{root}/shards/train', skipped=1)
    for ours, theirs in ((shards, folder), (resumed, folder[1:])):
        assert len(ours) == len(theirs)
        for batch, expected in zip(ours, theirs, strict=True):
            assert all(torch.equal(*pair) for pair in zip(batch, expected, strict=True))
    labels = torch.cat([label for label, _ in shards])
    both = [torch.empty_like(labels) for _ in range(2)]
    torch_dist.all_gather(both, labels)
    assert sorted(torch.cat(both).tolist()) == [0] * 3 + [1] * 5 + [2] * 2
    end()


@pytest.mark.slow
def test_two_ranks_get_the_batches_of_the_folder(folders):
    in_two_processes(compare_in_two_ranks, folders)
