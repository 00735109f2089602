"""Parameters and FLOPs of the classifiers in projects/experiments/ablations, with LayerNorm and with DTN.

    python benchmarks/other_architectures.py [NAME...]

FLOPs are multiply-adds of the network for one image of 224 x 224 pixels, with its classifier where that is part of the
backbone. Nothing is computed: each operation is only asked for the shape of its result.
"""

import argparse
import shlex
import sys
from pathlib import Path

import mmpretrain.utils
from measuring import print_table
from mmengine import Config, DefaultScope
from mmengine.config import DictAction
from mmengine.registry import MODELS
from torch import nn

from tokennorm.norms import DTN

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / 'tools'))
from flops import count_operations  # noqa: E402

CONFIGS = ROOT / 'configs' / 'imagenet'
TIMM = 'convit-small_8xb128_in1k'
ARCHITECTURES = {  # name: config, options
    'LeViT-128S': (
        TIMM,
        "model.backbone.model.model_name=levit_128s model.backbone.norm_args.include='stages.*.bn' "
        'model.backbone.norm_args.num_heads=4',
    ),
    'T2T-ViT_t-14': ('t2t-vit-t-14_8xb64_in1k', ''),
    'Swin-T': ('swin-tiny_16xb64_in1k', ''),
    'Swin-S': ('swin-small_16xb64_in1k', ''),
    'ConViT-S': (TIMM, ''),
    'TNT-S': (TIMM, 'model.backbone.model.model_name=tnt_s_patch16_224'),
    'ViTamin-S': (TIMM, 'model.backbone.model.model_name=vitamin_small_224'),
    'ConvNeXt-T': (
        TIMM,
        'model.backbone.model.model_name=convnext_tiny '
        "model.backbone.norm_args.include='stages.*.blocks.*.norm' model.backbone.norm_args.num_heads=3",
    ),
}


def read_config(name: str, dtn: bool) -> Config:
    """The config of an architecture, with its options applied."""
    config, line = ARCHITECTURES[name]
    words = [*shlex.split(line), *(['model.backbone.token_norm_cfg.type=DTN'] if dtn else [])]
    cfg = Config.fromfile(CONFIGS / f'{config}.py')
    cfg.merge_from_dict({key: DictAction._parse_iterable(value) for key, value in (w.split('=', 1) for w in words)})
    return cfg


def build(cfg: Config) -> nn.Module:
    """The classifier of a config."""
    mmpretrain.utils.register_all_modules(init_default_scope=False)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return MODELS.build(cfg.model | dict(data_preprocessor=cfg.data_preprocessor))


def counts(name: str, dtn: bool) -> tuple[int, int, int]:
    """DTN layers, parameters and multiply-adds."""
    cfg = read_config(name, dtn)
    cfg.model.pop('train_cfg')  # MixUp and CutMix
    model = build(cfg).eval().double()
    layers = sum(isinstance(module, DTN) for module in model.modules())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return layers, parameters, count_operations(model.extract_feat, (224, 224))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('names', nargs='*', default=list(ARCHITECTURES), metavar='NAME')
    rows = []
    for name in parser.parse_args().names:
        (_, *plain), (layers, *dtn) = counts(name, False), counts(name, True)
        row = {'model': name, 'DTN layers': str(layers)}
        for i, (title, unit) in enumerate((('parameters, M', 1e6), ('FLOPs, G', 1e9))):
            row[title] = f'{plain[i] / unit:.3f}'
            row[f'{title}, DTN'] = f'{dtn[i] / unit:.3f}'
        rows.append(row)
    print_table(rows)


if __name__ == '__main__':
    main()
