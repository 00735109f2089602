"""From a config, a checkpoint and images to a backbone and what it is given."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import DATASETS, MODELS, init_default_scope
from torch import Tensor, nn

from tokennorm.engine.check_env import require_mmcv_ops
from tokennorm.engine.prediction import IMAGE_SUFFIXES, list_images, read_images
from tokennorm.engine.runner.options import merge_options
from tokennorm.research.analysis.probe import find_blocks


@dataclass
class Image:
    """An image as the config's test pipeline leaves it.

    Attributes:
        name: Its file name.
        pixels: (H, W, 3) uint8 RGB, resized as for the model.
        data: What the data preprocessor takes: `inputs` and `data_samples`, lists of one.
    """

    name: str
    pixels: np.ndarray
    data: dict[str, Any]


def open_config(path: Path, options: dict[str, Any] | None = None) -> Config:
    """A config of a detector or a classifier, its scope being the default one from now on.

    Raises:
        FileNotFoundError: where there is no such file.
        ValueError: for a config of anything else, and for an option that does not fit it.
    """
    if not path.is_file():
        raise FileNotFoundError(f'config {path} is not there')
    cfg = Config.fromfile(path)
    for warning in merge_options(cfg, options or {}):
        print(f'warning: {warning}', flush=True)
    scope = cfg.get('default_scope')
    if scope not in ('mmdet', 'mmpretrain') or 'backbone' not in cfg.get('model', {}):
        raise ValueError(f'{path} is no config of a detector or a classifier: default_scope={scope!r}')
    if scope == 'mmdet':
        require_mmcv_ops()
    init_default_scope(scope)
    return cfg


def open_backbone(cfg: Config, checkpoint: str | None) -> nn.Module:
    """The backbone of a config with the weights of a checkpoint: a training's, of whatever classes, or a published one.

    Without one it is as a training from scratch begins, random numbers from seed 0.

    Raises:
        FileNotFoundError, OSError: where the checkpoint cannot be read.
        CheckpointError: where it does not fit the backbone.
        ValueError: for a backbone that cannot be looked into.
    """
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    init_cfg = None if checkpoint is None else dict(type='Pretrained', checkpoint=checkpoint)
    backbone = MODELS.build(dict(cfg.model.backbone, init_cfg=None))
    find_blocks(backbone)
    if init_cfg is not None:
        backbone.init_cfg = init_cfg
        backbone.init_weights()
    return backbone.eval()


def open_images(cfg: Config, folder: Path | None, count: int) -> list[Image]:
    """`count` images, evenly spaced, of a folder (or one file), or of the config's validation data.

    Raises:
        FileNotFoundError: where the folder, or what the config's data is made of, is not there.
        ValueError: where there are none, or one of them cannot be read.
    """
    init_default_scope(cfg.default_scope)
    dataset_cfg = cfg.val_dataloader.dataset
    if folder is None:
        try:
            dataset = DATASETS.build(dataset_cfg)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"the config's validation data is not there ({error.filename or error}); name images with --images"
            ) from None
        source, size = dataset.__getitem__, len(dataset)
    else:
        if not folder.exists():
            raise FileNotFoundError(f'{folder} is not there')
        folder, names = list_images(folder, leave_out=folder / 'work_dirs')
        if not names:
            raise ValueError(f'{folder} has no images ({", ".join(IMAGE_SUFFIXES)})')
        pipeline = Compose([step for step in dataset_cfg.pipeline if 'Annotations' not in str(step['type'])])
        size = len(names)

        def source(i: int) -> dict[str, Any]:
            if next(read_images(folder, [names[i]]))[1] is None:
                raise ValueError(f'{folder / names[i]} cannot be read')
            return pipeline(dict(img_path=str(folder / names[i]), img_id=i))

    samples = [source(int(i)) for i in np.linspace(0, size - 1, min(count, size))]
    return [_image(sample) for sample in samples]


def _image(sample: dict[str, Any]) -> Image:
    pixels = sample['inputs'].permute(1, 2, 0).numpy()[..., ::-1]
    name = Path(sample['data_samples'].img_path).name
    return Image(name, pixels, dict(inputs=[sample['inputs']], data_samples=[sample['data_samples']]))


def prepare(cfg: Config, image: Image) -> Tensor:
    """An image as the config's data preprocessor hands it to the backbone, (1, 3, H, W)."""
    init_default_scope(cfg.default_scope)
    preprocessor = cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor')
    if cfg.default_scope == 'mmpretrain':
        preprocessor = dict(type='ClsDataPreprocessor') | dict(preprocessor or {})
    return MODELS.build(preprocessor)(image.data, training=False)['inputs']
