"""`tokennorm.CocoDataset`: mmdet's COCO dataset, whose images are read by the decoder of this package."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmdet.datasets import CocoDataset as MMDetCocoDataset
from mmengine import fileio

from tokennorm.images.pixels import decode
from tokennorm.registry import DATASETS, type_name


class _LoadImage(LoadImageFromFile):
    """mmcv's, with `tokennorm.images.pixels` as its decoder."""

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        image = decode(fileio.get(results['img_path'], backend_args=self.backend_args))
        if image is None:
            raise OSError('the image cannot be decoded')
        shape = image.shape[:2]
        return results | dict(
            img=image.astype(np.float32) if self.to_float32 else image, img_shape=shape, ori_shape=shape
        )


@DATASETS.register_module()
class CocoDataset(MMDetCocoDataset):
    """mmdet's dataset with its arguments. Images have the same pixels as in `check`, prediction and exported files."""

    def __init__(self, *args: Any, pipeline: Sequence[Any] = (), **kwargs: Any) -> None:
        super().__init__(*args, pipeline=[_with_decoder(step) for step in pipeline], **kwargs)


def _with_decoder(step: Any) -> Any:
    """A step that loads colors as mmcv does by default gets the decoder; another one stays."""
    loads = isinstance(step, Mapping) and type_name(step) == 'LoadImageFromFile'
    return dict(step, type=_LoadImage) if loads and not {'color_type', 'imdecode_backend'} & step.keys() else step
