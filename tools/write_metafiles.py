"""Writes the metafiles of the configs and docs/configs.md from configs/results.yml: `python tools/write_metafiles.py`

A new config needs a line in configs/results.yml. `--count` counts the parameters and FLOPs that are missing there. It
takes some seconds per config.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import yaml

from tokennorm.published import published_detector

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / 'configs' / 'results.yml'
IMAGE = {'coco': (800, 1280), 'in1k': (224, 224), 'in21k': (224, 224)}  # height and width at which FLOPs are counted
PAPER = 'Reported by the DTN paper'
DTN_PAPER = 'Dynamic Token Normalization (https://arxiv.org/abs/2112.02624), Table'
COLLECTIONS = {
    'pvt': ('PVT', 'PyramidVisionTransformer', 'https://arxiv.org/abs/2102.12122'),
    'pvt_v2': ('PVTv2', 'PyramidVisionTransformerV2', 'https://arxiv.org/abs/2106.13797'),
    'swin': ('Swin', 'Swin Transformer', 'https://arxiv.org/abs/2103.14030'),
    'vit': ('ViT', 'Vision Transformer with a simple feature pyramid', 'https://arxiv.org/abs/2203.16527'),
    'timm': ('timm', 'Backbones of timm', 'https://github.com/huggingface/pytorch-image-models'),
    'imagenet': ('ImageNet pretraining', 'Vision transformer classifiers', 'https://arxiv.org/abs/2112.02624'),
}
NAME = re.compile(
    r'(?:(?P<detector>retinanet|mask-rcnn)_)?(?P<backbone>.+?)(?P<variant>(?:-dtn)?(?:-dpn)?)_(?:[sf]pn_)?'
    r'(?P<schedule>.+)_(?P<data>coco|in1k|in21k)'
)
VARIANTS = {'': 'LN', '-dtn': 'DTN', '-dpn': 'DPN', '-dtn-dpn': 'DTN+DPN'}
COLUMNS = {'retinanet': 'RetinaNet, COCO', 'mask-rcnn': 'Mask R-CNN, COCO', None: 'ImageNet'}

Entry = dict[str, Any]


def read_results() -> dict[str, dict[str, Entry]]:
    """The entries of configs/results.yml: folder, name of the config, entry."""
    return yaml.safe_load(RESULTS.read_text(encoding='utf-8'))


def results_text(results: dict[str, dict[str, Entry]]) -> str:
    """The text of configs/results.yml: its heading, and one line per config."""
    text = ''.join(
        line for line in RESULTS.read_text(encoding='utf-8').splitlines(keepends=True) if line.startswith('#')
    )
    for folder, entries in results.items():
        text += f'{folder}:\n'
        for name, entry in entries.items():
            values = yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10**6).strip()
            text += f'  {name}: {values}\n'
    return text


def metafile(folder: str, entries: dict[str, Entry]) -> dict[str, Any]:
    """The content of a folder's metafile.yml, in OpenMMLab's layout."""
    collection, architecture, url = COLLECTIONS[folder]
    data = 'ImageNet-1k' if folder == 'imagenet' else 'COCO'
    models = []
    for name, entry in entries.items():
        epochs = entry.get('epochs', 300 if folder == 'imagenet' else 12)
        counts = {key: entry[key.lower()] for key in ('Parameters', 'FLOPs') if key.lower() in entry}
        model = {
            'Name': name,
            'In Collection': collection,
            'Config': f'configs/{folder}/{name}.py',
            'Metadata': {'Epochs': epochs, **counts},
        }
        if 'paper' in entry:
            source = f'{DTN_PAPER} {entry["table"]}'
            model[PAPER] = {'Source': source, 'Results': metrics(data, entry['paper'])}
        if 'measured' in entry:
            model['Results'] = metrics(data, entry['measured'])
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


def metrics(data: str, values: list[float]) -> list[dict[str, Any]]:
    """Values in the order of configs/results.yml, in OpenMMLab's layout."""
    if data == 'ImageNet-1k':
        found = dict(zip(('Top 1 Accuracy', 'Top 5 Accuracy'), values, strict=False))
        return [{'Task': 'Image Classification', 'Dataset': data, 'Metrics': found}]
    tasks = (('Object Detection', 'box AP'), ('Instance Segmentation', 'mask AP'))
    return [
        {'Task': task, 'Dataset': data, 'Metrics': {metric: value}}
        for (task, metric), value in zip(tasks, values, strict=False)
    ]


HEADING = """# Model zoo

`tokennorm train --data DIR` [chooses a config](guides/configs.md). This page lists all of them. This project has not
trained on COCO or ImageNet: results on these are those of their authors.

In the tables parameters are in millions. FLOPs are billions of multiply-adds for one image: whole detectors at
800 x 1280 pixels (Mask R-CNN with 1000 proposals and 100 masks), backbones of classifiers at 224 x 224. AP is box AP,
or box / mask AP, on COCO val2017. The column "DTN paper" has the AP, or the top-1 accuracy on ImageNet-1k, that the
paper states. FLOPs with DTN are lower than the paper's, because P is [separable](concepts/dtn.md); the learning rate of
0.001 on ImageNet is [the paper's 0.0005 by DeiT's rule](study/reproduction.md).
"""
FOOTER = """
## Trials, demo, segmentation

| config | use it for | result |
|---|---|---|
| `pretrain/pvt-mini*` | [pretraining](guides/pretrain.md) on a CPU | [study](study/study.md) |
| `trial/*` | your own photographs, on a CPU | [hardware and time](get_started/train.md#hardware-and-time) |
| `demo/retinanet_pvt-mini-dtn-dpn_fpn_shapes` | `make demo`: generated shapes | AP 47.1 |
| `demo/retinanet_pvt-mini_fpn_shapes` | `make demo CONTROL=1`: LayerNorm, plain stem | [study](study/study.md) |
| `demo/retinanet_pvt-mini-dtn_fpn_bccd` | blood cells | AP 47.0 after 24 of 60 epochs |
| `demo/retinanet_pvt-mini_fpn_bccd` | the same with LayerNorm | not measured |
| `demo/mask-rcnn_pvt-mini_fpn_nuclei` | nuclei of cells | with DTN and DPN, 3 epochs: AP 28.2, mask AP 29.1 |
| `segmentation/*` | [semantic segmentation](guides/migrate.md#segmentation) | not trained |

## Support matrix

{matrix}
LN is LayerNorm with the plain stem, DTN replaces the norms inside the blocks, DPN is Dual PatchNorm in the stem.
`star` is ViT-T\\*, -S\\* or -B\\* of the DTN paper; `p32` has patches of 32 x 32 pixels; `local` has
[LocalLayerNorm](concepts/normalizers.md#locallayernorm). PVT with DTN has the heads (4, 4, 5, 8)
([why](concepts/dtn.md#options)), PVT with LN (1, 2, 5, 8), so their difference may be one of the heads. The rows
`h4458` have LN and DPN with DTN's heads: compare DTN and DTN+DPN with these. Other combinations are options:

```bash
# another normalizer or stem; --init FILE for weights that fit it
--init none --cfg-options model.backbone.token_norm_cfg.type=DTN model.backbone.stem_cfg.type=DualPatchEmbed
# Mask R-CNN on another size: mask-rcnn_pvtv2-b2_fpn_1x_coco with the weights that its RetinaNet config names
--cfg-options model.backbone.arch=b4 model.backbone.init_cfg.checkpoint=URL
```
"""


def backbone_of(name: str) -> str:
    """Common name of a backbone in the names of detectors (`swin-t-p4-w7`) and classifiers (`swin-tiny`): `Swin-T`."""
    short = re.sub('-(t|s|m|l|b)(iny|mall|edium|arge|ase)', r'-\1', name.replace('-p4-w7', ''))
    family, _, rest = short.partition('-')
    title = {'pvt': 'PVT', 'pvtv2': 'PVTv2', 'swin': 'Swin', 'vit': 'ViT'}[family]
    size, _, rest = rest.partition('-')
    return f'{title}-{size.upper()}' + (f' {rest}' if rest else '')


def support_matrix(results: dict[str, dict[str, Entry]]) -> str:
    """The table of backbones, detectors, norms and stems that have a config."""
    cells: dict[str, dict[str | None, list[str]]] = {}
    for name in (name for entries in results.values() for name in entries):
        parts = NAME.fullmatch(name)
        other = re.search('accum|augreg|release|3x', parts['schedule'])
        if not re.match('pvt|swin|vit', parts['backbone']) or other or parts['data'] == 'in21k':
            continue  # third-party models, and the same models on one GPU, by another recipe or on other images
        backbone = backbone_of(parts['backbone'].removesuffix('-local'))
        row = cells.setdefault(backbone, {column: [] for column in COLUMNS})
        row[parts['detector']].append('local' if '-local' in name else VARIANTS[parts['variant']])
    text = f'| backbone | {" | ".join(COLUMNS.values())} |\n|---{"|---" * len(COLUMNS)}|\n'
    for backbone, row in sorted(cells.items()):
        text += f'| {backbone} | {" | ".join(", ".join(variants) for variants in row.values())} |\n'
    return text


def use_of(folder: str, name: str, table: int | None, pretrained: set[str]) -> str:
    """What a config is for, in a few words.

    Args:
        folder: The folder of the config.
        name: The name of the config.
        table: The table of the DTN paper that has the model.
        pretrained: Backbones with their variants, such as 'PVT-T DTN', that detectors load.
    """
    parts = NAME.fullmatch(name)
    variant = VARIANTS[parts['variant']]
    if '-h4458' in name:
        return 'the control of DTN: its heads without it'
    if '-local' in name:
        return 'pretraining for detectors' if folder == 'imagenet' else 'detection after pretraining'
    if folder == 'imagenet':
        if not re.match('pvt|swin|vit', parts['backbone']):
            return 'a third-party model with DTN'
        if 'release' in parts['schedule']:
            return "the recipe of the DTN authors' code" + (': the baseline' if variant == 'LN' else '')
        if 'augreg' in parts['schedule']:
            return "big_vision's recipe, for Dual PatchNorm" + (': the baseline' if variant == 'LN' else '')
        if parts['data'] == 'in21k':
            return "ImageNet-21k, a dataset of Dual PatchNorm's paper" + (': the baseline' if variant == 'LN' else '')
        if variant == 'LN':
            return 'the baseline of pretraining with DTN or DPN'
        if f'{backbone_of(parts["backbone"])} {variant}' in pretrained:
            return f'pretraining for detectors with {variant}'
        return f'Table {table} of the DTN paper' if table else "the ViTs of Dual PatchNorm's paper"
    if variant != 'LN':
        return f'detection after pretraining with {variant}'
    published = published_detector(name)
    aps = [f'{ap:.1f}' for ap in (published.box_ap, published.mask_ap) if ap is not None] if published else []
    weights = 'pretrained weights' if folder == 'timm' else 'ImageNet weights'
    if published:
        weights = f'COCO weights (AP {" / ".join(aps)})'
    return f'own data, {"one GPU, " if "accum" in name else ""}from {weights}'


def index(results: dict[str, dict[str, Entry]]) -> str:
    """The text of docs/configs.md."""
    detectors = [NAME.fullmatch(name) for folder in ('pvt', 'pvt_v2', 'swin', 'vit') for name in results[folder]]
    pretrained = {f'{backbone_of(parts["backbone"])} {VARIANTS[parts["variant"]]}' for parts in detectors}
    text = HEADING
    for folder, (title, _, _) in COLLECTIONS.items():
        columns = ['config', 'use it for', 'parameters (M)', 'FLOPs (G)']
        has_paper = any('paper' in entry for entry in results[folder].values())
        columns += ['DTN paper'] if has_paper else []
        text += f'\n## {title}\n\n| {" | ".join(columns)} |\n{"|---" * len(columns)}|\n'
        for name, entry in results[folder].items():
            parameters, flops = entry.get('parameters', 0) / 1e6, entry.get('flops', 0) / 1e9
            values = [f'{value:.1f}' for value in entry.get('paper', ())]
            cells = [
                f'[{name}](../configs/{folder}/{name}.py)',
                use_of(folder, name, entry.get('table'), pretrained),
                f'{parameters:.1f}',
                f'{flops:.1f}',
                ' / '.join(values[:1] if folder == 'imagenet' else values),
            ]
            text += f'| {" | ".join(cells[: len(columns)])} |\n'
    return text + FOOTER.format(matrix=support_matrix(results))


def generated(results: dict[str, dict[str, Entry]]) -> dict[Path, str]:
    """The text of each generated file."""
    heading = '# Written by tools/write_metafiles.py\n'
    files = {
        ROOT / 'configs' / folder / 'metafile.yml': heading + yaml.safe_dump(metafile(folder, entries), sort_keys=False)
        for folder, entries in results.items()
    }
    return files | {ROOT / 'docs' / 'configs.md': index(results)}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--count', action='store_true', help='count the missing parameters and FLOPs')
    args = parser.parse_args(argv)
    results = read_results()
    if args.count:
        from flops import count
        from mmengine import Config

        for folder, entries in results.items():
            for name, entry in entries.items():
                if 'flops' not in entry:
                    cfg = Config.fromfile(ROOT / 'configs' / folder / f'{name}.py')
                    entries[name] = count(cfg, IMAGE[NAME.fullmatch(name)['data']]) | entry
                    RESULTS.write_text(results_text(results), encoding='utf-8')
    for path, text in generated(results).items():
        path.write_text(text, encoding='utf-8')


if __name__ == '__main__':
    main()
