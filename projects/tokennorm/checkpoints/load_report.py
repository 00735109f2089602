"""Report of what happened to each parameter of a checkpoint and of a model."""

from dataclasses import dataclass, field

from torch import Tensor

from tokennorm.messages import shorten


@dataclass
class LoadReport:
    """What became of the keys of a model and of a file."""

    model: str  # the model's class
    source: str  # the file or URL
    layout: str  # whose names the file has
    loaded: list[str] = field(default_factory=list)  # from the file; names and the order of values may differ
    # position embeddings and bias tables of another size than in the file
    resized: list[str] = field(default_factory=list)
    # not in the file: initialized by the model or as the published models are
    missing: list[str] = field(default_factory=list)
    # of the file's own names, those that the model does not have, such as a classifier's head
    unexpected: list[str] = field(default_factory=list)
    note: str = ''  # a difference between model and file that the weights do not show

    def __str__(self) -> str:
        kinds = dict(resized='resized', missing='missing, newly initialized', unexpected='of the file not used')
        counts = [
            f'{len(keys)} {text}: {shorten(keys)}' for kind, text in kinds.items() if (keys := getattr(self, kind))
        ]
        lines = [
            f'{self.model} loaded from {self.source} (names of {self.layout})',
            f'{len(self.loaded)} loaded',
            *counts,
        ]
        return '\n  '.join([*lines, self.note] if self.note else lines)


def misfit(expected: dict[str, Tensor], found: dict[str, Tensor]) -> str:
    """Returns one line each for missing, unexpected and mis-shaped keys of `found`; '' if everything fits."""
    reshaped = [
        f'{key} ({tuple(found[key].shape)} in the file, {tuple(value.shape)} in the model)'
        for key, value in expected.items()
        if key in found and found[key].shape != value.shape
    ]
    kinds = {
        'missing': sorted(set(expected) - set(found)),
        'unexpected': sorted(set(found) - set(expected)),
        'of another shape': reshaped,
    }
    return '\n'.join(f'  {len(keys)} {kind}: {shorten(keys, 4)}' for kind, keys in kinds.items() if keys)
