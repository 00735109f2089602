"""`tokennorm.publish`: makes a checkpoint small and safe to share."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokennorm.base.messages import UserError, counted, in_python
from tokennorm.commands.checks import path_of
from tokennorm.commands.result import Result


@dataclass(frozen=True)
class PublishResult(Result):
    """Result of `tokennorm.publish`."""

    file: Path  #: the published file, with its hash in the name
    card: Path  #: the model card
    source: Path  #: the checkpoint
    megabytes: float  #: size of the file
    tensors: int  #: number of tensors
    left_out: Sequence[str]  #: parts of the checkpoint that were left out


@in_python
def publish(source: Any, out: str | Path, *, license: str = '') -> PublishResult:
    """Makes a training run's checkpoint small and safe to share: weights, classes and config, without the optimizer.

    A model card, README.md, is written next to it.

    Args:
        source: Checkpoint, or work directory of a training run: its best checkpoint; or an open `Detector`.
        out: File that ends in .pth or .safetensors; the first digits of its SHA-256 are added to its name.
        license: License of the weights, for the model card.
    """
    source = path_of('source', getattr(source, 'checkpoint', source))  # of an open Detector
    out = path_of('out', out)
    if out.suffix not in ('.pth', '.safetensors'):
        raise UserError(f'{out}: name a file that ends in .pth or .safetensors')

    from tokennorm.base.files import make_output_dir
    from tokennorm.checkpoints import Checkpoint
    from tokennorm.checkpoints.publication import for_publication, to_bytes, write_new
    from tokennorm.inference.runtime import thresholds_of
    from tokennorm.report.card import Card, report_of, write_card

    checkpoint = Checkpoint.read(str(source))
    source = Path(checkpoint.source)
    published = for_publication(checkpoint.content, checkpoint.source)
    if 'thresholds' not in published['meta'] and (thresholds := thresholds_of(source)) is not None:
        published['meta']['thresholds'] = json.loads(thresholds.read_text(encoding='utf-8'))['classes']
    make_output_dir(out.parent)
    file = to_bytes(published, out.suffix)
    written = out.with_name(f'{out.name.removesuffix(out.suffix)}-{hashlib.sha256(file).hexdigest()[:8]}{out.suffix}')
    write_new(written, file)
    dropped = sorted(set(checkpoint.content) - set(published)) if 'state_dict' in checkpoint.content else []
    classes = checkpoint.dataset_meta.get('classes') or ()
    card = write_card(Card(written, classes, license=license, report=report_of(source)))
    size, tensors = len(file) / 1e6, len(published['state_dict'])
    before = f' instead of {source.stat().st_size / 1e6:.1f} MB' if source.is_file() else ''
    lines = [f'{written}: {size:.1f} MB{before}, {counted(tensors, "tensor")}', f'from {checkpoint}']
    lines += [f'left out: {", ".join(dropped) or "nothing"}', f'model card: {card}']
    return PublishResult(written, card, source, size, tensors, dropped, lines=lines)
