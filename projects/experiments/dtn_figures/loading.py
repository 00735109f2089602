"""Opens a backbone from a config and a checkpoint, and its input images."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import DATASETS, MODELS, init_default_scope
from torch import Tensor, nn

from tokennorm.backbones.base import Backbone
from tokennorm.base.messages import UserError
from tokennorm.checkpoints import find_checkpoint, load_pretrained, read_state_dict
from tokennorm.config.open_config import read_config, use_options
from tokennorm.datasets.image_files import IMAGE_SUFFIXES, list_images


class Image(NamedTuple):
    """An image after the config's test pipeline."""

    pixels: np.ndarray  # (H, W, 3) uint8 RGB, resized as for the model
    data: dict[str, Any]  # input of the data preprocessor: `inputs` and `data_samples`, lists of one


def open_config(path: str | Path, options: dict[str, Any] | None = None) -> Config:
    """Reads the config of a detector or a classifier, and makes its scope the default scope."""
    cfg = read_config(path)
    use_options(cfg, options)
    scope = cfg.get('default_scope')
    if 'backbone' not in cfg.model or scope not in ('mmdet', 'mmpretrain'):
        raise UserError(f'{path} is not a detector or classifier config: default_scope={scope!r}')
    init_default_scope(scope)
    return cfg


def open_backbone(cfg: Config, checkpoint: str | None) -> nn.Module:
    """Builds the backbone of a config in eval mode, with the weights of a checkpoint, or at random from seed 0."""
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    backbone = MODELS.build(dict(cfg.model.backbone, init_cfg=None))
    if checkpoint is not None and isinstance(backbone, Backbone):
        load_pretrained(backbone, checkpoint)
    elif checkpoint is not None:  # mmengine would silently load what fits
        whole = read_state_dict(find_checkpoint(checkpoint))
        own = {key.removeprefix('backbone.'): value for key, value in whole.items() if key.startswith('backbone.')}
        backbone.load_state_dict(own or whole)
    backbone.eval()  # some upstream backbones return None
    return backbone


def open_images(cfg: Config, folder: Path | None, count: int) -> list[Image]:
    """Reads `count` images, evenly spaced, of a folder, a file or the config's validation data."""
    init_default_scope(cfg.default_scope)
    dataset_cfg = cfg.val_dataloader.dataset
    if folder is None:
        try:
            source = DATASETS.build(dataset_cfg)
        except FileNotFoundError as error:
            raise UserError(
                f"the config's validation data is not found ({error.filename or error}); name images with --images"
            ) from None
    else:
        source = list_images(folder) if folder.is_dir() else [folder]
        pipeline = Compose([step for step in dataset_cfg.pipeline if 'Annotations' not in str(step['type'])])
    if not len(source):
        raise UserError(f'{folder} has no images ({", ".join(IMAGE_SUFFIXES)})')
    images = []
    for i in np.linspace(0, len(source) - 1, min(count, len(source)), dtype=int).tolist():
        sample = source[i] if folder is None else pipeline(dict(img_path=str(source[i]), img_id=i))
        pixels = sample['inputs'].permute(1, 2, 0).numpy()[..., ::-1]
        images.append(Image(pixels, dict(inputs=[sample['inputs']], data_samples=[sample['data_samples']])))
    return images


def prepare(cfg: Config, image: Image) -> Tensor:
    """Returns the backbone's input for an image, from the config's data preprocessor, (1, 3, H, W)."""
    init_default_scope(cfg.default_scope)
    preprocessor = cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor')
    if cfg.default_scope == 'mmpretrain':
        preprocessor = dict(type='ClsDataPreprocessor') | dict(preprocessor or {})
    return MODELS.build(preprocessor)(image.data, training=False)['inputs']
