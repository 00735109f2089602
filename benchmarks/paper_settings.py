"""Prints what the papers state about training and models next to the values of the configs: `python
benchmarks/paper_settings.py`

The values are read from the configs as they are built, not from their files. PVT's hyperparameters are those of its
paper, which the DTN paper names for COCO.
"""

from pathlib import Path

import mmdet.utils
import mmpretrain.utils
from measuring import print_table
from mmengine import Config, DefaultScope
from mmengine.registry import MODELS
from torch import nn

from tokennorm.norms import DTN

CONFIGS = Path(__file__).resolve().parents[1] / 'configs'
IMAGENET = {
    'images per step': '1024 (DTN, B.1)',
    'optimizer': 'Adam, momentum 0.9 (DTN, B.1)',
    'weight decay': '0.05 (DTN, B.1)',
    'learning rate': "0.0005 (DTN, B.1); by DeiT's rule x 1024 / 512",
    'schedule': 'cosine (DTN, B.1)',
    'pools': '4 and 2 in the first two stages of PVT and Swin (DTN, B.1)',
    'DTN in': '10 blocks of ViT, 3 stages of PVT, all of Swin (DTN, A.1)',
    'lambda, P': '0.5; -1 and the centers of Eq. 7 (DTN, 3.2)',
}
COCO = {
    'images per step': '16 (PVT)',
    'optimizer': 'AdamW (PVT)',
    'weight decay': '1e-4 (PVT)',
    'learning rate': '1e-4 (PVT)',
    'schedule': '12 epochs, x 0.1 after 8 and 11 (PVT)',
    'eps of norms': 'as in pretraining',
}


def build(cfg: Config) -> nn.Module:
    """The backbone of a config, without its initial weights."""
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return MODELS.build(dict(cfg.model.backbone, init_cfg=None))


def values_of(name: str, gpus: int) -> dict[str, str]:
    """The settings of a config, as text."""
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    backbone = build(cfg)
    layers = {key: module for key, module in backbone.named_modules() if isinstance(module, DTN)}
    optimizer, last = cfg.optim_wrapper.optimizer, cfg.param_scheduler[-1]
    moments = optimizer.get('betas', (0.9, 0.999))
    schedule = f'{last.type} to epoch {last.get("end", cfg.train_cfg.max_epochs)}' + (
        f' at {list(last.milestones)}' if 'milestones' in last else ''
    )
    first = next(iter(layers.values()), None)
    start = '' if first is None else f'{first.var_logit.sigmoid()[0]:g}; {first.position[0].tolist()}'
    eps = sorted({module.eps for module in backbone.modules() if isinstance(module, nn.LayerNorm)})
    return {
        'images per step': str(cfg.train_dataloader.batch_size * gpus),
        'optimizer': f'{optimizer.type}, {moments[0]}',
        'weight decay': f'{optimizer.weight_decay:g}',
        'learning rate': f'{optimizer.lr:g}',
        'schedule': schedule,
        'pools': str([*dict.fromkeys(layer.pool for layer in layers.values())]),
        'DTN in': f'{len({key.rpartition(".norm")[0] for key in layers})} blocks',
        'lambda, P': start,
        'eps of norms': ', '.join(f'{value:g}' for value in eps),
    }


def main() -> None:
    mmdet.utils.register_all_modules(init_default_scope=False)
    mmpretrain.utils.register_all_modules(init_default_scope=False)
    for title, stated, names in (
        ('ImageNet', IMAGENET, ('vit-small-star-dtn_8xb128', 'pvt-tiny-dtn_8xb128', 'swin-tiny-dtn_16xb64')),
        ('COCO', COCO, ('retinanet_pvt-t-dtn_fpn_1x', 'mask-rcnn_pvt-t-dtn_fpn_1x')),
    ):
        folder, suffix = ('imagenet', 'in1k') if title == 'ImageNet' else ('pvt', 'coco')
        columns = {name: values_of(f'{folder}/{name}_{suffix}', 16 if '16xb' in name else 8) for name in names}
        if title == 'COCO':
            columns['pretraining'] = values_of('imagenet/pvt-tiny-dtn_8xb128_in1k', 8)
        print(f'\n{title}\n')
        print_table(
            [
                {'setting': setting, 'paper': paper} | {name: values[setting] for name, values in columns.items()}
                for setting, paper in stated.items()
            ]
        )


if __name__ == '__main__':
    main()
