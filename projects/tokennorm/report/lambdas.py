"""lambda of Eq. 5, the learned ratio of intra-token and inter-token statistics (DTN paper, Fig. 4): of a model, and as
a training logged it."""

from pathlib import Path

from torch import Tensor, nn

from tokennorm.norms import DTN
from tokennorm.report.scalars import Curve, read_scalars

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
    """Returns the scalars that `LambdaHook` logged, by their names without the prefix."""
    scalars = read_scalars(work_dir)
    return {name.removeprefix(PREFIX): curve for name, curve in scalars.items() if name.startswith(PREFIX)}
