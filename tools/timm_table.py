"""Tries `TimmBackbone` with one model of each family of timm, and writes the table of docs/guides/timm.md.

    python tools/timm_table.py            # all families, some minutes
    python tools/timm_table.py resnet18   # prints the rows of these models

Everything runs on the meta device, which computes shapes only: no weights, no download.
"""

import argparse
import warnings
from collections.abc import Iterable
from pathlib import Path

import timm
import torch

from tokennorm.backbones import TimmBackbone

PAGE = Path(__file__).resolve().parents[1] / 'docs' / 'guides' / 'timm.md'
BEGIN, END = '<!-- Written by tools/timm_table.py -->', '<!-- end of the table -->'
# fmt: off
MODELS = (
    'vit_small_patch16_dinov3', 'vit_small_patch14_dinov2', 'vit_tiny_patch16_224', 'deit_tiny_patch16_224',
    'deit3_small_patch16_224', 'eva02_tiny_patch14_224', 'vit_small_patch16_rope_ape_224', 'beit_base_patch16_224',
    'vit_relpos_small_patch16_224', 'vitamin_small_224', 'samvit_base_patch16', 'pvt_v2_b0',
    'swin_tiny_patch4_window7_224', 'swinv2_tiny_window8_256', 'swinv2_cr_tiny_224', 'sam2_hiera_tiny',
    'hiera_tiny_224', 'mvitv2_tiny', 'twins_pcpvt_small', 'davit_tiny', 'focalnet_tiny_srf', 'gcvit_xxtiny',
    'nextvit_small', 'coat_tiny', 'xcit_nano_12_p16_224', 'tiny_vit_5m_224', 'volo_d1_224', 'cait_xxs24_224',
    'convit_tiny', 'tnt_s_legacy_patch16_224', 'pit_ti_224', 'nest_tiny', 'crossvit_tiny_240', 'levit_128s',
    'visformer_tiny', 'efficientvit_b0', 'efficientvit_m0', 'efficientformer_l1', 'efficientformerv2_s0',
    'swiftformer_xs', 'csatv2', 'maxvit_nano_rw_256', 'coatnet_nano_rw_224', 'mobilevit_s', 'edgenext_xx_small',
    'caformer_s18', 'poolformer_s12', 'fastvit_t8', 'repvit_m1', 'mambaout_femto', 'convnext_atto',
    'convnextv2_atto', 'inception_next_atto', 'rdnet_tiny', 'hgnetv2_b0', 'starnet_s1', 'shvit_s1', 'fasternet_t0',
    'mobilenetv4_conv_small', 'tf_efficientnet_lite0', 'regnetx_002', 'resnet18', 'hrnet_w18_small',
    'cspdarknet53', 'vgg11',
)
# fmt: on
DYNAMIC = (
    {},
    dict(dynamic_img_size=True),
    dict(dynamic_img_size=True, dynamic_img_pad=True),
    dict(strict_img_size=False),
)
FIXED, SQUARE = (160, 224), (160, 160)  # pixels
TRIALS: list[tuple[str, tuple[int, int], dict[str, object]]] = [
    *(('any', (150, 203), args) for args in DYNAMIC),
    *(('multiples of 32', FIXED, args) for args in DYNAMIC),
    ('fixed', FIXED, dict(img_size=FIXED)),
    ('fixed, square', SQUARE, dict(img_size=SQUARE)),
]
# The meta device does not see indices beyond the relative positions of this model.
LIMITED = {'mvitv2_tiny': ('up to `img_size`, 224 by default', (150, 203), dict(img_size=512))}
SHOWN: dict[object, str] = {FIXED: '(H, W)', SQUARE: '(S, S)'}


def build(name: str, **kwargs: object) -> TimmBackbone:
    """The backbone on the meta device, in eval mode."""
    with torch.device('meta'):
        return TimmBackbone(name, **kwargs).eval()


def runs(model: TimmBackbone, size: tuple[int, int]) -> bool:
    """Whether an image of this size gives feature maps of the stated strides, up to rounding."""
    try:
        with torch.no_grad():
            maps = model(torch.zeros(2, 3, *size, device='meta'))
    except Exception:  # timm's models raise errors of any kind here
        return False
    sides = [entry['reduction'] for entry in model.feature_info]
    return all(abs(out.shape[-2] - size[0] / side) < 1.01 for out, side in zip(maps, sides, strict=True))


def trial_of(name: str) -> tuple[str, tuple[int, int], dict[str, object]] | None:
    """The first trial that a model passes: words, size of the images, and `timm_args`. None if it passes none."""
    for trial in [LIMITED[name]] if name in LIMITED else TRIALS:
        try:
            model = build(name, timm_args=trial[2])
        except Exception:  # most models lack most of these arguments
            continue
        if runs(model, trial[1]):
            return trial
    height, width = timm.get_pretrained_cfg(name).input_size[1:]
    return (f'{height} x {width} only', (height, width), {}) if runs(build(name), (height, width)) else None


def dtn_of(name: str, size: tuple[int, int], args: dict[str, object]) -> str:
    """Whether DTN replaces the norms of a model that takes images of this size."""
    try:
        model = build(name, token_norm_cfg=dict(type='DTN'), timm_args=args)
    except ValueError as error:
        words = {'reorders its tokens': 'refused', 'name them in include': 'by `include`', 'has no LayerNorm': 'no'}
        return next((word for text, word in words.items() if text in str(error)), 'no')
    return 'yes' if runs(model, size) else 'no'


def row_of(name: str) -> tuple[str, ...]:
    """The cells of a model after its name: strides, image sizes with their `timm_args`, and DTN."""
    trial = trial_of(name)
    if trial is None:
        return '', 'not supported', ''
    sizes, size, args = trial
    shown = ', '.join(f'{key}={SHOWN.get(value, value)}' for key, value in args.items())
    strides = '/'.join(str(entry['reduction']) for entry in build(name, timm_args=args).feature_info)
    return strides, f'{sizes}: `{shown}`' if shown else sizes, dtn_of(name, size, args)


def table(names: Iterable[str]) -> str:
    """The table of docs/guides/timm.md: a row per group of models with equal cells."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        groups.setdefault(row_of(name), []).append(f'`{name}`')
    head = '| models | strides | image sizes: `timm_args` | DTN |\n|---|---|---|---|\n'
    return head + ''.join(f'| {" | ".join((", ".join(models), *cells))} |\n' for cells, models in groups.items())


def main() -> None:
    """Prints the rows of the named models, or writes the table of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('models', nargs='*', help='names in timm')
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    if args.models:
        print(table(args.models))
        return
    text = PAGE.read_text(encoding='utf-8')
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(f'{text[:start]}\n\n{table(MODELS)}\n{text[end:]}', encoding='utf-8')


if __name__ == '__main__':
    main()
