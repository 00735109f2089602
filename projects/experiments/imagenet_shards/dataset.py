"""Dataset of WebDataset shards for classifiers of mmpretrain."""

from pathlib import Path
from typing import Any

from mmpretrain.datasets import CustomDataset

from experiments.imagenet_shards.shards import SCHEME, read_index
from tokennorm.base.messages import shorten
from tokennorm.registry import DATASETS


@DATASETS.register_module()
class ShardDataset(CustomDataset):
    """mmpretrain's `CustomDataset` with images in shards (`write_shards.py`), in the same order.

    Args:
        split: Folder with the shards and their index, below `data_root`, as in mmpretrain's `ImageNet`.
        **kwargs: Those of `CustomDataset`; `data_prefix` replaces `split`.
    """

    def __init__(self, split: str = '', **kwargs: Any) -> None:
        super().__init__(**{'data_prefix': split} | kwargs)

    def load_data_list(self) -> list[dict[str, Any]]:
        """Returns path and label of each image. mmengine calls it."""
        folder = Path(self.img_prefix).absolute()
        index = read_index(folder)
        classes = self._metainfo.setdefault('classes', tuple(index['classes']))
        if list(classes) != index['classes']:
            raise ValueError(
                f'{folder} has the classes {shorten(index["classes"])}, expected {shorten(classes)}, in this order'
            )
        return [
            dict(img_path=f'{SCHEME}{folder / shard}?{offset}+{size}&{name}', gt_label=label)
            for shard, content in index['shards'].items()
            for name, offset, size, label in content['samples']
        ]
