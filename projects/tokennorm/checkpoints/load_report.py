"""Report of what happened to each parameter of a checkpoint and of a model."""

from dataclasses import dataclass, field

from torch import Tensor

from tokennorm.messages import shorten


@dataclass
class LoadReport:
    """The keys of a model, each in one of four lists, and the unused keys of a file.

    Args:
        model: The model's class.
        source: The file or URL.
        layout: Whose names the file has.
        matched: Equal to a tensor in the file; only the name may differ.
        converted: Computed from tensors in the file: reordered, split, joined.
        resized: Position embeddings and bias tables of another size than in the file.
        missing: Not in the file: initialized by the model or as the published models are.
        unexpected: Not used, by the file's own names, such as a classifier's head.
    """

    model: str
    source: str
    layout: str
    matched: list[str] = field(default_factory=list)
    converted: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ['converted', 'resized', 'missing', 'unexpected']
        counts = [f'{len(keys)} {kind}: {shorten(keys)}' for kind in kinds if (keys := getattr(self, kind))]
        return '\n  '.join(
            [f'{self.model} loaded from {self.source} ({self.layout})', f'{len(self.matched)} matched', *counts]
        )


def misfit(expected: dict[str, Tensor], found: dict[str, Tensor]) -> str:
    """What of `found` is missing, unexpected or of another shape, one line each; '' if everything fits."""
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
