"""lambda of Eq. 5, the learned ratio of intra-token and inter-token statistics (DTN paper, Fig. 4): of a model, and as
a training logged it."""

import json
from pathlib import Path

from torch import Tensor, nn

from tokennorm.norms import DTN

Curve = dict[int, float]  # value at each training iteration
PREFIX = 'lambda/'
STATISTICS = ('mean', 'min', 'max')


def dtn_layers(model: nn.Module) -> dict[str, DTN]:
    """The DTN layers of a model by name, in its order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, DTN)}


def ratios_of(norm: DTN) -> dict[str, Tensor]:
    """lambda of each head for the 'mean', where it is learned, and for the 'var', (N,). 1 is LayerNorm's statistics."""
    logits = dict(mean=norm.mean_logit, var=norm.var_logit)
    return {kind: logit.detach().float().sigmoid() for kind, logit in logits.items() if logit is not None}


def ratio_scalars(model: nn.Module) -> dict[str, float]:
    """For each DTN layer the mean, least and largest lambda of its heads, as 'lambda/LAYER.mean.min' and the like."""
    return {
        f'{PREFIX}{name}.{kind}.{statistic}': getattr(ratios, statistic)().item()
        for name, norm in dtn_layers(model).items()
        for kind, ratios in ratios_of(norm).items()
        for statistic in STATISTICS
    }


def read_ratio_curves(work_dir: Path) -> dict[str, Curve]:
    """What `LambdaHook` logged, each scalar by its name without the prefix.

    A resumed training has a file for each start. Of an iteration that several files have the latest counts.

    Args:
        work_dir: Work folder of a training.
    """
    curves: dict[str, Curve] = {}
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for line in path.read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:  # cut off when a training was killed
                continue
            for name, value in entry.items():
                if name.startswith(PREFIX):
                    curves.setdefault(name.removeprefix(PREFIX), {})[entry['step']] = value
    return {name: dict(sorted(curve.items())) for name, curve in curves.items()}
