"""The table of docs/reference/detectors.yml, and small forms of its detectors."""

from pathlib import Path

import yaml
from mmengine.config import Config

from tokennorm.config.open_config import read_config
from tokennorm.config.tree import evaluators, innermost_datasets, loaders, set_num_classes, walk

TABLE = yaml.safe_load((Path(__file__).resolve().parents[2] / 'docs/reference/detectors.yml').read_text())
COLUMNS, ROWS = TABLE['columns'], TABLE['rows']
CLASSES = ('disk', 'square', 'triangle', 'star')
WIDTHS = {256: 16, 512: 32, 1024: 64, 2048: 128}  # of ResNet-50, and of the ResNet-18 that replaces it
HEAD_WIDTHS = ('in_channels', 'out_channels', 'feat_channels', 'conv_out_channels', 'fc_out_channels')


def small_config(name: str) -> Config:
    """The config of a row with random weights, few channels and layers, and batches of two."""
    cfg = read_config(ROWS[name]['config'])
    is_transformer = {'encoder', 'panoptic_head'} & set(cfg.model)
    of_resnet = cfg.model.backbone.type == 'ResNet'
    for _, part in walk(cfg.model, 'model'):
        if (part.get('init_cfg') or {}).get('type') == 'Pretrained':
            part['init_cfg'] = None
        if part.get('type') == 'ResNet':
            part.update(depth=18, base_channels=16, stem_channels=16)
        if of_resnet and isinstance(part.get('in_channels'), list):
            part['in_channels'] = [WIDTHS[width] for width in part['in_channels']]
        if part.get('type') == 'tokennorm.ViT':
            part.arch = dict(embed_dims=96, depths=12, num_heads=3, mlp_ratios=4)
        if part.get('type') == 'tokennorm.SimpleFeaturePyramid':
            part.update(in_channels=96, out_channels=64)
        for key in HEAD_WIDTHS if not is_transformer else ():
            if part.get(key) in (256, 1024):
                part[key] = 64
        if part.get('num_layers', 0) > 2:
            part['num_layers'] = 2
    if cfg.model.get('num_queries', 0) > 100:  # more than the tokens of such images
        cfg.model.num_queries = 20
    for loader in loaders(cfg):
        loader.update(batch_size=2, num_workers=0, persistent_workers=False)
    dataset = cfg.train_dataloader.dataset
    dataset.update(dict(times=1) if 'times' in dataset else {})
    cfg.default_hooks.logger.interval = 1
    if 'max_iters' in cfg.train_cfg:
        cfg.train_cfg.update(max_iters=2, val_interval=2, dynamic_intervals=None)
        cfg.default_hooks.checkpoint.interval = 2
    return cfg


def name_data(cfg: Config, data: Path) -> Config:
    """Points a config at the data, as a user does by hand."""
    for split, folder in (('train', 'train'), ('val', 'val'), ('test', 'val')):
        file = dict(ann_file=str(data / f'annotations/{folder}.json'))
        for dataset in innermost_datasets(cfg[f'{split}_dataloader'].dataset):
            prefix = dict(img=f'{data}/images/{folder}/')
            dataset.update(file, data_root='', data_prefix=prefix, metainfo=dict(classes=CLASSES))
        for metric in evaluators(cfg, split):
            metric.update(file)
    set_num_classes(cfg.model, len(CLASSES))
    return cfg
