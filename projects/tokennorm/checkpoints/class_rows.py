"""Rows of classes: takes those of a checkpoint by the names of its classes, in any layer that counts classes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from tokennorm.checkpoints.layouts import StateDict


def rows_by_name(trained: Sequence[str], classes: Sequence[str]) -> list[int | None]:
    """Returns for each class its index in the classes of a checkpoint, or None for a class that it lacks."""
    known = {name: i for i, name in enumerate(_numbered(trained))}
    return [known.get(name) for name in _numbered(classes)]


def _numbered(names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yields each name and how often it came before: two classes may have one name."""
    seen: Counter[str] = Counter()
    for name in names:
        yield name, seen[name]
        seen[name] += 1


def describe_rows(rows: Sequence[int | None]) -> str:
    """Returns one line about the rows that are taken."""
    taken = [row for row in rows if row is not None]
    parts = [f'classes: {len(taken)} of {len(rows)} rows taken by name']
    parts += ['in another order'] * (taken != sorted(taken))
    parts += [f'{len(rows) - len(taken)} newly initialized'] * (len(taken) < len(rows))
    return ', '.join(parts)


def describe_difference(trained: Sequence[str], classes: Sequence[str]) -> str | None:
    """Returns how the classes of a checkpoint differ from others, and which row a class has by place; None if equal."""
    rows = rows_by_name(trained, classes)
    if rows == list(range(len(trained))):
        return None
    reason = 'not the same' if None in rows or len(rows) != len(trained) else 'in another order'
    both = f'{len(trained)} ({", ".join(trained)}) and {len(classes)} ({", ".join(classes)})'
    pairs = [f'{new} has the row of {old}' for old, new in zip(trained, classes, strict=False) if old != new]
    return '; by their places '.join([f'{reason}: {both}', *pairs[:1]])


@dataclass(frozen=True)
class ClassAxis:
    """The axis of a tensor that counts classes.

    It has an entry per class, and `others` that are of no class, such as the background, `copies` times.

    Attributes:
        axis: Its index; 0 for outputs of a layer.
        copies: Number of anchors, or 4 for the coordinates of boxes per class.
        others: Entries per copy that are of no class: the background, which comes last, or box and objectness of
            YOLOv3 and other inputs of the layer, which come first.
        others_first: Whether they come before the classes.
        class_outside: Whether entries are ordered by class and then by copy, as boxes per class are.
    """

    axis: int
    copies: int
    others: int
    others_first: bool
    class_outside: bool

    def classes(self, size: int) -> int | None:
        """Returns the number of classes in `size` entries; None if no number gives this size."""
        return None if size % self.copies else size // self.copies - self.others

    def places(self, size: int) -> Tensor:
        """Returns the entries as a table of indices, (copies, classes + others); the others come last."""
        table = torch.arange(size)
        table = table.reshape(-1, self.copies).T if self.class_outside else table.reshape(self.copies, -1)
        return table.roll(-self.others, 1) if self.others_first else table

    def pairs(self, old: int, new: int, rows: Sequence[int | None]) -> tuple[Tensor, Tensor]:
        """Returns the entries that are taken from an axis of size `old`, and their places in one of size `new`.

        `rows` are indices of its classes, None for a new one. Entries of no class are taken, too.
        """
        before, after = self.places(old), self.places(new)
        taken = [(row, i) for i, row in enumerate(rows) if row is not None]
        taken += [(before.shape[1] - 1 - i, after.shape[1] - 1 - i) for i in range(self.others)]
        sources, targets = ([pair[i] for pair in taken] for i in (0, 1))
        return before[:, sources].flatten(), after[:, targets].flatten()


def take_rows(axes: Sequence[ClassAxis], old: Tensor, rows: Sequence[int | None], initial: Tensor) -> Tensor:
    """Returns a copy of `initial` with the rows of `old`, along each of the axes that count classes."""
    sources, targets = ([torch.arange(size) for size in initial.shape] for _ in range(2))
    for one in axes:
        sources[one.axis], targets[one.axis] = one.pairs(old.shape[one.axis], initial.shape[one.axis], rows)
    result = initial.clone()
    result[torch.meshgrid(*targets, indexing='ij')] = old[torch.meshgrid(*sources, indexing='ij')].to(initial)
    return result


def class_axes(model: nn.Module, num_classes: int, larger: Mapping[str, Tensor]) -> dict[str, list[ClassAxis]]:
    """Returns the axes of each tensor of a model that count classes, by the names of its state dict.

    Args:
        model: A model of `num_classes` classes.
        num_classes: That number.
        larger: State dict of the same model with one class more. Shapes that differ count classes, whatever the layer
            is called. Names that it lacks, such as those of a backbone, are left out.
    """
    axes: dict[str, list[ClassAxis]] = {}
    for key, value in model.state_dict().items():
        more = larger[key].shape if key in larger else value.shape
        for axis, (size, copies) in enumerate((size, more[i] - size) for i, size in enumerate(value.shape)):
            others, rest = divmod(size, copies) if copies else (0, 0)
            if not copies or rest or (others := others - num_classes) < 0:
                continue
            head = _head_of(model, key)
            # Inputs of a layer are features before the scores of classes; YOLOv3's outputs are a box before them.
            first = axis > 0 or hasattr(head, 'num_attrib')
            outside = not hasattr(head, 'num_base_priors')  # of a head that scores each class once per anchor
            axes.setdefault(key, []).append(ClassAxis(axis, copies, others, first, outside))
    return axes


def _head_of(model: nn.Module, key: str) -> nn.Module:
    """Returns the innermost module around a tensor that knows its number of classes."""
    head = part = model
    for name in key.split('.')[:-1]:
        part = getattr(part, name)
        head = part if hasattr(part, 'num_classes') else head
    return head


def take_class_rows(
    axes: Mapping[str, Sequence[ClassAxis]],
    expected: Mapping[str, Tensor],
    state_dict: StateDict,
    trained: Sequence[str],
    classes: Sequence[str],
) -> dict[str, Callable[[Tensor], Tensor]]:
    """Returns for each layer of classes that a checkpoint has a function of its initial value, which has its rows.

    Args:
        axes: Those of the model, by `class_axes`.
        expected: State dict of the model.
        state_dict: That of the checkpoint, in the names of the model.
        trained: The classes of the checkpoint.
        classes: Those of the data. Rows that the model has beyond them are new.
    """
    rows, found = rows_by_name(trained, classes), dict[str, Callable[[Tensor], Tensor]]()
    for key, counted in axes.items():
        old, new = state_dict.get(key), expected[key]
        by_axis = {one.axis: one for one in counted}
        if (
            old is not None
            and old.dim() == new.dim()
            and all(_fits(by_axis.get(i), size, new.shape[i], len(trained)) for i, size in enumerate(old.shape))
        ):
            found[key] = partial(take_rows, counted, old, rows)
    return found


def _fits(axis: ClassAxis | None, old: int, new: int, trained: int) -> bool:
    """Returns whether an axis has the size of the model, or that of the trained classes."""
    return old == new or (axis is not None and axis.classes(old) == trained)
