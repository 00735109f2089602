"""Images in one folder per class, as DINO's crops or whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchvision.datasets import ImageFolder
from torchvision.transforms import CenterCrop, Compose, Normalize, Resize, ToTensor

from tokennorm.registry import DATASETS

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@DATASETS.register_module()
class Crops(ImageFolder):
    """Images of `data_root/folder/CLASS/`, as global and local crops for DINO, or whole.

    Args:
        data_root: Folder of the data.
        folder: Folder of the classes in it.
        crops: Arguments of lightly's `DINOTransform`, such as `global_crop_size`. None returns whole images.
        size: Side of whole images, in pixels.
    """

    def __init__(self, data_root: str, folder: str, crops: Mapping[str, Any] | None = None, size: int = 224) -> None:
        if crops is None:
            resize = Resize(size if size < 224 else round(size / 0.875))
            transform = Compose([resize, CenterCrop(size), ToTensor(), Normalize(MEAN, STD)])
        else:
            from lightly.transforms.dino_transform import DINOTransform

            transform = DINOTransform(**crops)
        super().__init__(str(Path(data_root, folder)), transform=transform)
        self.metainfo = dict(classes=tuple(self.classes))

    def __getitem__(self, index: int) -> dict[str, Any]:
        """`inputs`, one view or a list of views (C, H, W), and `labels`."""
        views, label = super().__getitem__(index)
        return dict(inputs=views, labels=label)
