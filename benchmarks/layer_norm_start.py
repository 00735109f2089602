"""Difference of feature maps between `DTN(init='layer_norm')` and LayerNorm, for several logits of lambda.

    python benchmarks/layer_norm_start.py

Prints the largest difference of each model's maps, relative to the largest entry of the map, at a random start.
"""

import torch
from measuring import print_table

from tokennorm.backbones import PVT, PVTv2, Swin
from tokennorm.norms import DTN

MODELS = [(PVT, 'tiny', 1e-6), (PVT, 'large', 1e-6), (PVTv2, 'b1', 1e-6), (PVTv2, 'b5', 1e-6), (Swin, 'small', 1e-5)]
LOGITS = (6, 7, 8, 9)


@torch.no_grad()
def main() -> None:
    rows = []
    for kind, arch, eps in MODELS:
        torch.manual_seed(0)
        image = torch.randn(2, 3, 224, 320)
        source = kind(arch).eval()
        model = kind(arch, token_norm_cfg=dict(type='DTN', init='layer_norm', eps=eps)).eval()
        model.load_state_dict(source.state_dict(), strict=False)
        expected = source(image)
        row = dict(model=f'{kind.__name__} {arch}')
        for logit in LOGITS:
            for norm in (module for module in model.modules() if isinstance(module, DTN)):
                norm.mean_logit.fill_(logit)
                norm.var_logit.fill_(logit)
            errors = [(a - e).abs().max() / e.abs().max() for a, e in zip(model(image), expected, strict=True)]
            row[f'logit {logit}'] = f'{max(errors).item():.1e}'
        rows.append(row)
    print_table(rows)


if __name__ == '__main__':
    main()
