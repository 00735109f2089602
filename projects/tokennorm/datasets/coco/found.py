"""Result of inspecting a dataset."""

from dataclasses import dataclass, field


@dataclass
class Inspection:
    """Problems of a dataset, and its counts.

    Attributes:
        errors: Problems that would stop a training run or make its evaluation wrong, one line each.
        warnings: Problems that leave data out or make its use doubtful.
        table: Names and counts, Markdown.
        most_objects: Number of objects in the image that has most.
        mask_errors: Problems that would stop training on masks, or make their evaluation wrong; boxes are not affected.
    """

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    table: str = ''
    most_objects: int = 0
    mask_errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.text()

    def text(self, with_masks: bool = True) -> str:
        """Returns the table and all problems, without those of masks for a detector of boxes."""
        masks = [f'not usable for masks: {line}' for line in self.mask_errors if with_masks]
        lines = [f'ERROR: {line}' for line in self.errors] + [f'warning: {line}' for line in self.warnings]
        text = '\n'.join([*([self.table, ''] if self.table else []), *(lines or ['No problems found.']), *masks])
        return text.encode('utf-8', 'backslashreplace').decode()  # JSON may hold characters that no terminal prints
