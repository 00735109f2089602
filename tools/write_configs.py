"""Writes the config variants, their metafiles and docs/configs.md from one table: `python tools/write_configs.py`

The first config of each family and detector is written by hand. Everything that differs from it in the size of the
backbone, the normalizer, the stem or the initial weights is generated. `--count` counts parameters and FLOPs anew,
which takes some minutes. Without it the counts of the present metafiles are kept.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
IMAGE = {'coco': (800, 1280), 'in1k': (224, 224)}  # height and width at which FLOPs are counted
PAPER = 'Reported by the DTN paper'
DTN_PAPER = 'Dynamic Token Normalization (https://arxiv.org/abs/2112.02624), Table'
PVT_WEIGHTS = 'https://github.com/whai362/PVT/releases/download/v2/{}.pth'
SWIN_WEIGHTS = 'https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_{}_patch4_window7_224.pth'
DEIT_WEIGHTS = 'https://dl.fbaipublicfiles.com/deit/deit_{}.pth'


@dataclass(frozen=True)
class Backbone:
    """One size of a backbone.

    Args:
        folder: Folder of its detector configs.
        key: Its name in the names of detector configs.
        title: Its name in sentences.
        arch: The config argument.
        weights: URL of the LayerNorm weights that its authors published.
        imagenet: Its name in the names of ImageNet configs. Sizes without it have no variants.
        options: Further arguments of `model` that this size needs in detector configs.
        backbone_options: Further arguments of the backbone that it needs there.
    """

    folder: str
    key: str
    title: str
    arch: str
    weights: str
    imagenet: str = ''
    options: tuple[str, ...] = ()
    backbone_options: tuple[str, ...] = ()

    @property
    def neck(self) -> str:
        return 'sfp' if self.folder == 'vit' else 'fpn'

    def config(self, detector: str, variant: str = '', schedule: str = '1x') -> str:
        return f'{detector}_{self.key}{variant}_{self.neck}_{schedule}_coco'

    def pretraining(self, variant: str = '') -> str:
        return f'{self.imagenet}{variant}_{"16xb64" if self.folder == "swin" else "8xb128"}_in1k'


def pvt(letter: str, arch: str, imagenet: str = '', **options: Any) -> Backbone:
    return Backbone(
        'pvt', f'pvt-{letter}', f'PVT-{arch.title()}', arch, PVT_WEIGHTS.format(f'pvt_{arch}'), imagenet, **options
    )


def pvt_v2(size: int, imagenet: str = '') -> Backbone:
    return Backbone(
        'pvt_v2',
        f'pvtv2-b{size}',
        f'PVTv2-B{size}',
        f'b{size}',
        PVT_WEIGHTS.format(f'pvt_v2_b{size}'),
        imagenet,
        ('neck=dict(in_channels=[64, 128, 320, 512])',) if size == 1 else (),
    )


BACKBONES = [
    pvt('t', 'tiny', 'pvt-tiny'),
    pvt('s', 'small', 'pvt-small'),
    pvt('m', 'medium', backbone_options=('drop_path_rate=0.0',)),
    pvt('l', 'large', backbone_options=('drop_path_rate=0.0',)),
    pvt_v2(0),
    pvt_v2(1),
    pvt_v2(2, 'pvtv2-b2'),
    pvt_v2(3),
    pvt_v2(4),
    pvt_v2(5),
    Backbone('swin', 'swin-t-p4-w7', 'Swin-T', 'tiny', SWIN_WEIGHTS.format('tiny'), 'swin-tiny'),
    Backbone('swin', 'swin-s-p4-w7', 'Swin-S', 'small', SWIN_WEIGHTS.format('small')),
    Backbone('vit', 'vit-s', 'ViT-S', 'small', DEIT_WEIGHTS.format('small_patch16_224-cd65a155'), 'vit-small'),
    Backbone(
        'vit',
        'vit-b',
        'ViT-B',
        'base',
        DEIT_WEIGHTS.format('base_patch16_224-b5f2ef4d'),
        'vit-base',
        ('neck=dict(in_channels=768)',),
    ),
]
DETECTORS = {'retinanet': 'RetinaNet', 'mask-rcnn': 'Mask R-CNN'}
VARIANTS = {
    '-dtn': ('Dynamic Token Normalization', ("token_norm_cfg=dict(type='DTN')",)),
    '-dpn': ('Dual PatchNorm', ("stem_cfg=dict(type='DualPatchEmbed')",)),
    '-dtn-dpn': (
        'Dynamic Token Normalization and Dual PatchNorm',
        ("token_norm_cfg=dict(type='DTN')", "stem_cfg=dict(type='DualPatchEmbed')"),
    ),
}
FINE_TUNING = ('pvt-t', 'swin-t-p4-w7')  # those with configs for one GPU
THIRD_PARTY = {'convit-small_8xb128_in1k': 300, 't2t-vit-t-14_8xb64_in1k': 310}  # classifiers, and their epochs
WITH_MASKS = ('pvt-t', 'pvt-s', 'pvtv2-b2', 'swin-t-p4-w7', 'swin-s-p4-w7', 'vit-s')  # those with Mask R-CNN
PAPER_WITH_MASKS = ('pvt-t', 'pvt-s')  # Mask R-CNN with DTN: those in Table 11
# What the paper reports: box AP, or box AP and mask AP, or top-1 and top-5 accuracy.
REPORTED = {
    'retinanet_pvt-t_fpn_1x_coco': (11, 36.7),
    'retinanet_pvt-t-dtn_fpn_1x_coco': (11, 38.0),
    'retinanet_pvt-s_fpn_1x_coco': (11, 40.4),
    'retinanet_pvt-s-dtn_fpn_1x_coco': (11, 41.8),
    'mask-rcnn_pvt-t_fpn_1x_coco': (11, 36.7, 35.1),
    'mask-rcnn_pvt-t-dtn_fpn_1x_coco': (11, 38.1, 36.3),
    'mask-rcnn_pvt-s_fpn_1x_coco': (11, 40.4, 37.8),
    'mask-rcnn_pvt-s-dtn_fpn_1x_coco': (11, 41.7, 39.0),
    'vit-small_8xb128_in1k': (1, 79.9, 95.0),
    'vit-small-dtn_8xb128_in1k': (1, 80.6, 95.3),
    'vit-base_8xb128_in1k': (1, 81.8, 95.9),
    'vit-base-dtn_8xb128_in1k': (1, 82.3, 96.0),
    'pvt-tiny_8xb128_in1k': (2, 75.1, 92.3),
    'pvt-tiny-dtn_8xb128_in1k': (2, 76.3, 93.1),
    'pvt-small_8xb128_in1k': (2, 79.9, 95.0),
    'pvt-small-dtn_8xb128_in1k': (2, 80.8, 95.6),
    'swin-tiny_16xb64_in1k': (2, 81.2, 95.5),
    'swin-tiny-dtn_16xb64_in1k': (2, 81.9, 96.0),
}
MEASURED: dict[str, tuple[float, ...]] = {}  # results of this project, in the same order; empty until a run on COCO
COLLECTIONS = {
    'pvt': ('PVT', 'PyramidVisionTransformer', 'https://arxiv.org/abs/2102.12122'),
    'pvt_v2': ('PVTv2', 'PyramidVisionTransformerV2', 'https://arxiv.org/abs/2106.13797'),
    'swin': ('Swin', 'Swin Transformer', 'https://arxiv.org/abs/2103.14030'),
    'vit': ('ViT', 'Vision Transformer with a simple feature pyramid', 'https://arxiv.org/abs/2203.16527'),
    'imagenet': ('ImageNet pretraining', 'Vision transformer classifiers', 'https://arxiv.org/abs/2112.02624'),
}


@dataclass(frozen=True)
class Entry:
    """One config: its folder, its name, and its text if it is generated."""

    folder: str
    name: str
    text: str = ''


def config_text(doc: str, base: str, backbone: tuple[str, ...], model: tuple[str, ...] = (), rest: str = '') -> str:
    """A config with other arguments of the backbone and the model than `base`, formatted by ruff."""
    end = '\n' if '\n' in doc else ''
    text = f'''"""{doc}{end}"""

_base_ = './{base}.py'

model = dict({', '.join((f'backbone=dict({", ".join(backbone)})', *model))})
{rest}'''
    command = [sys.executable, '-m', 'ruff', 'format', '--stdin-filename', str(ROOT / 'configs' / 'x.py'), '-']
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


ONE_GPU_DOC = """{} on {} with {}, on one GPU.

A step has 8 batches of 2 images, with activation checkpointing. Schedules count batches, so the warm-up has 8 times as
many iterations as on 8 GPUs. `--auto-scale-lr` does not count accumulated batches and leaves the learning rate as it
is."""
ONE_GPU_REST = """optim_wrapper = dict(accumulative_counts=8)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end={}),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
auto_scale_lr = dict(base_batch_size=2)
"""


def first_size(backbone: Backbone, detector: str) -> Backbone:
    """The smallest backbone of the same family that has a config with this detector. It is written by hand."""
    return next(each for each in BACKBONES if each.folder == backbone.folder and has_config(each, detector))


def has_config(backbone: Backbone, detector: str) -> bool:
    return detector == 'retinanet' or backbone.key in WITH_MASKS


def detector_entries(backbone: Backbone) -> Iterator[Entry]:
    """The configs of a backbone with RetinaNet and, for the sizes in `WITH_MASKS`, with Mask R-CNN."""
    for detector, title in DETECTORS.items():
        if not has_config(backbone, detector):
            continue
        name = backbone.config(detector)
        head = first_size(backbone, detector)
        if backbone == head:
            yield Entry(backbone.folder, name)
        else:
            base = pvt_v2(1) if backbone.folder == 'pvt_v2' and backbone.arch != 'b1' else head
            weights = f"init_cfg=dict(checkpoint='{backbone.weights}')"
            authors = dict(swin='Swin', vit='DeiT').get(backbone.folder, 'PVT')
            doc = (
                f"{title} on {backbone.title} with LayerNorm, initialized from the {authors} authors' ImageNet weights."
            )
            lines = (f"arch='{backbone.arch}'", *backbone.backbone_options, weights)
            yield Entry(backbone.folder, name, config_text(doc, base.config(detector), lines, backbone.options))
        for variant, (what, lines) in VARIANTS.items():
            with_masks = variant == '-dtn' and backbone.key in PAPER_WITH_MASKS
            if not backbone.imagenet or (detector == 'mask-rcnn' and not with_masks):
                continue
            made = backbone.pretraining(variant)
            doc = f'{title} on {backbone.title} with {what}.\n\n{pretraining_doc(backbone, variant)}'
            init = f"init_cfg=dict(checkpoint='work_dirs/{made}/epoch_300.pth')"
            yield Entry(backbone.folder, backbone.config(detector, variant), config_text(doc, name, (*lines, init)))
    if backbone.key in FINE_TUNING:
        yield from fine_tuning_entries(backbone)


def pretraining_doc(backbone: Backbone, variant: str) -> str:
    """The paragraph of a docstring on the initial weights of a variant."""
    gpus = 16 if backbone.folder == 'swin' else 8
    if variant == '-dtn':
        command = f'    tools/dist_train.sh configs/imagenet/{backbone.pretraining(variant)}.py {gpus}'
    else:
        options = dict(dtn='model.backbone.token_norm_cfg.type=DTN', dpn='model.backbone.stem_cfg.type=DualPatchEmbed')
        chosen = ' '.join(options[part] for part in variant.strip('-').split('-'))
        command = (
            f'    tools/dist_train.sh configs/imagenet/{backbone.pretraining()}.py {gpus} \\\\\n'
            f'        --work-dir work_dirs/{backbone.pretraining(variant)} \\\\\n        --cfg-options {chosen}'
        )
    return f'The initial weights are those of your own ImageNet pretraining:\n\n{command}'


def fine_tuning_entries(backbone: Backbone) -> Iterator[Entry]:
    """RetinaNet with LayerNorm on one GPU."""
    title = DETECTORS['retinanet']
    base, name = backbone.config('retinanet'), backbone.config('retinanet', '', '1xb2-accum8-1x')
    rest = ONE_GPU_REST.format(8 * (1000 if backbone.folder == 'swin' else 500))
    doc = ONE_GPU_DOC.format(title, backbone.title, 'LayerNorm')
    yield Entry(backbone.folder, name, config_text(doc, base, ('with_cp=True',), rest=rest))


def imagenet_entries() -> Iterator[Entry]:
    """ImageNet pretraining with LayerNorm, written by hand, and with DTN."""
    for backbone in BACKBONES:
        if backbone.imagenet:
            base = backbone.pretraining()
            yield Entry('imagenet', base)
            doc = f'{backbone.title} with Dynamic Token Normalization on ImageNet-1k.'
            yield Entry('imagenet', backbone.pretraining('-dtn'), config_text(doc, base, VARIANTS['-dtn'][1]))
    for name in THIRD_PARTY:
        yield Entry('imagenet', name)


@cache
def entries() -> list[Entry]:
    """All configs of this table, in the order of the docs."""
    return [*(entry for backbone in BACKBONES for entry in detector_entries(backbone)), *imagenet_entries()]


def metafile(folder: str, counts: dict[str, dict[str, int]]) -> dict[str, Any]:
    """The content of a folder's metafile.yml."""
    collection, architecture, url = COLLECTIONS[folder]
    data = 'ImageNet-1k' if folder == 'imagenet' else 'COCO'
    models = []
    for entry in entries():
        if entry.folder != folder:
            continue
        epochs = THIRD_PARTY.get(entry.name, 300) if folder == 'imagenet' else 12
        metadata = {'Epochs': epochs, **counts.get(entry.name, {})}
        model = {
            'Name': entry.name,
            'In Collection': collection,
            'Config': f'configs/{folder}/{entry.name}.py',
            'Metadata': metadata,
        }
        if entry.name in REPORTED:
            table, *values = REPORTED[entry.name]
            model[PAPER] = {'Source': f'{DTN_PAPER} {table}', 'Results': results(entry.name, data, values)}
        if entry.name in MEASURED:
            model['Results'] = results(entry.name, data, list(MEASURED[entry.name]))
        models.append(model)
    about = {
        'Name': collection,
        'Metadata': {
            'Training Data': data,
            'Training Techniques': ['AdamW', 'Weight Decay'],
            'Architecture': [architecture],
        },
        'Paper': {'URL': url},
        'README': 'README.md',
    }
    return {'Collections': [about], 'Models': models}


def results(name: str, data: str, values: list[float]) -> list[dict[str, Any]]:
    """The values of a model in the layout of OpenMMLab's metafiles."""
    if data == 'ImageNet-1k':
        metrics = dict(zip(('Top 1 Accuracy', 'Top 5 Accuracy'), values, strict=False))
        return [{'Task': 'Image Classification', 'Dataset': data, 'Metrics': metrics}]
    tasks = (('Object Detection', 'box AP'), ('Instance Segmentation', 'mask AP'))
    return [
        {'Task': task, 'Dataset': data, 'Metrics': {metric: value}}
        for (task, metric), value in zip(tasks, values, strict=False)
    ]


def present_counts() -> dict[str, dict[str, int]]:
    """Parameters and FLOPs of the present metafiles, by config."""
    found = {}
    for path in ROOT.glob('configs/*/metafile.yml'):
        for model in yaml.safe_load(path.read_text())['Models']:
            counts = {key: model['Metadata'][key] for key in ('Parameters', 'FLOPs') if key in model['Metadata']}
            found[model['Name']] = counts
    return found


def count(entry: Entry) -> dict[str, int]:
    """Parameters, and multiplications with an addition each for one image, of the model that a config builds."""
    import mmdet.utils
    import mmpretrain.utils
    from mmengine import Config, DefaultScope
    from mmengine.registry import MODELS

    from tokennorm.analysis.flops import count_operations, forward_of

    utils = mmpretrain.utils if entry.folder == 'imagenet' else mmdet.utils
    utils.register_all_modules(init_default_scope=False)
    cfg = Config.fromfile(ROOT / 'configs' / entry.folder / f'{entry.name}.py')
    cfg.model.backbone.pop('init_cfg', None)
    if entry.folder == 'imagenet':
        cfg.model.pop('train_cfg', None)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(cfg.model).eval().double()
    forward = model.extract_feat if entry.folder == 'imagenet' else forward_of(model)
    size = IMAGE[entry.name.rpartition('_')[2]]
    return {
        'Parameters': sum(parameter.numel() for parameter in model.parameters()),
        'FLOPs': count_operations(forward, size),
    }


INDEX_HEADING = """# Model zoo

`python tools/write_configs.py` writes this page. Parameters are in millions. FLOPs are billions of multiply-adds for
one image: whole detectors at 800 x 1280 pixels (Mask R-CNN with 1000 proposals and 100 masks), backbones of classifiers
at 224 x 224. AP is box AP, or box / mask AP, on COCO val2017; accuracy is top-1 on ImageNet-1k. The column "DTN paper"
quotes the authors' results. This project has not trained on COCO or ImageNet, so it reports no results of its own here.

Every size of a backbone has a RetinaNet config with LayerNorm. PVT-Tiny and -Small, PVTv2-B2, Swin-T, ViT-S and
ViT-B also have the variants and ImageNet pretraining. All of these but ViT-B, and Swin-S, have Mask R-CNN. Options
give every other combination:

```bash
# another normalizer or stem, from random weights
--cfg-options model.backbone.token_norm_cfg.type=DTN model.backbone.stem_cfg.type=DualPatchEmbed \\
    model.backbone.init_cfg=None
# Mask R-CNN on another size: mask-rcnn_pvt-t_fpn_1x_coco with the weights that the RetinaNet config of the size names
--cfg-options model.backbone.arch=medium model.backbone.drop_path_rate=0.0 model.backbone.init_cfg.checkpoint=URL
# random initialization, or other weights
--cfg-options model.backbone.init_cfg=None
--cfg-options model.backbone.init_cfg.checkpoint=FILE
```
"""


def index(counts: dict[str, dict[str, int]]) -> str:
    """The text of docs/configs.md."""
    text = INDEX_HEADING
    for folder, (title, _, _) in COLLECTIONS.items():
        text += f'\n## {title}\n\n| config | parameters (M) | FLOPs (G) | DTN paper |\n|---|---|---|---|\n'
        for entry in entries():
            if entry.folder != folder:
                continue
            parameters, flops = (counts.get(entry.name, {}).get(key, 0) for key in ('Parameters', 'FLOPs'))
            values = [f'{value:.1f}' for value in REPORTED.get(entry.name, ())[1:]]
            reported = ' / '.join(values[:1] if folder == 'imagenet' else values)
            link = f'[{entry.name}](../configs/{folder}/{entry.name}.py)'
            text += f'| {link} | {parameters / 1e6:.1f} | {flops / 1e9:.1f} | {reported} |\n'
    return text


def generated(counts: dict[str, dict[str, int]]) -> Iterator[tuple[Path, str]]:
    """Each generated file with its text."""
    for entry in entries():
        if entry.text:
            yield ROOT / 'configs' / entry.folder / f'{entry.name}.py', entry.text
    for folder in COLLECTIONS:
        text = '# Written by tools/write_configs.py\n' + yaml.safe_dump(metafile(folder, counts), sort_keys=False)
        yield ROOT / 'configs' / folder / 'metafile.yml', text
    yield ROOT / 'docs' / 'configs.md', index(counts)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--count', action='store_true', help='count parameters and FLOPs anew')
    args = parser.parse_args(argv)
    for path, text in generated(present_counts()):
        path.write_text(text)
    if args.count:
        for path, text in generated({entry.name: count(entry) for entry in entries()}):
            path.write_text(text)


if __name__ == '__main__':
    main()
