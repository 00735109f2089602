"""`tokennorm.benchmark`: compares a detector in PyTorch with its exported files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokennorm.base.console import say, table
from tokennorm.base.messages import UserError, counted, in_python
from tokennorm.commands.checks import check_choice, codes_of, path_of, paths_of
from tokennorm.commands.importing import import_openmmlab
from tokennorm.commands.opening import EXPORTED, mebibytes_of, name_detector
from tokennorm.commands.result import Result
from tokennorm.commands.test import SPLITS
from tokennorm.findings import Findings, judging


@dataclass(frozen=True)
class Benchmarked:
    """AP, time and size of a detector in one form."""

    name: str  #: 'PyTorch', or the file
    aps: Mapping[str, float]  #: by 'bbox' and 'segm', from 0 to 1, with all detections
    milliseconds: float  #: median per image
    mebibytes: float


@dataclass(frozen=True)
class BenchmarkResult(Result):
    """Result of `tokennorm.benchmark`."""

    rows: Sequence[Benchmarked]  #: PyTorch first
    images: int


@in_python
def benchmark(
    detector: Any,
    files: str | Path | Sequence[str | Path],
    data: str | Path,
    *,
    checkpoint: str | Path | None = None,
    split: str = 'val',
    allow: Sequence[str] = (),
    strict: bool = False,
    cfg_options: Mapping[str, Any] | None = None,
) -> BenchmarkResult:
    """Compares AP, time per image and size of a detector in PyTorch and in its exported files.

    Each image goes through all of them in turn, on the CPU, one image per forward pass.

    Args:
        detector: As `tokennorm.Detector` takes it, or an open one. An exported file is one of the `files`.
        files: .onnx and .xml files of `Detector.export`.
        data: Dataset in any format of `tokennorm.train`.
        checkpoint: Checkpoint of a config.
        split: 'train', 'val' or 'test': its images.
        allow: Codes of rules to overrule.
        strict: Warnings are errors.
        cfg_options: Entries of the config to set.
    """
    named = name_detector(detector, checkpoint, cfg_options)
    names = list(map(str, paths_of('files', files)))
    data, allow = path_of('--data', data), codes_of(allow)
    check_choice('--split', split, SPLITS)
    if other := [name for name in names if not name.endswith(EXPORTED)]:
        raise UserError(f'{other[0]} must be an .onnx or .xml file of `tokennorm export`')
    import_openmmlab()
    from tokennorm.datasets.discovery import find_splits
    from tokennorm.export.measure import measure
    from tokennorm.inference.runtime import ExportedDetector
    from tokennorm.inference.torch_detector import TorchDetector

    with judging(Findings(allow, strict)) as found:
        images = find_splits(data, (split,), where='--data')[split]
        opened = [ExportedDetector(name) for name in names]
        trained = TorchDetector(named.config, named.checkpoint, 'cpu', named.cfg_options)
        found.show()
        found.stop()
        if other := [name for name, file in zip(names, opened, strict=True) if file.classes != trained.classes]:
            raise UserError(f'{other[0]} has other classes than {trained.checkpoint}; name files of the same detector')
        count = len(images.content['images'])
        say(f'Checkpoint: {trained.description}\n{counted(count, f"{split} image")} of {data}')
        measured = measure([trained, *opened], images)
    in_pytorch = sum(value.nbytes for value in trained.model.state_dict().values()) / 2**20
    sizes = [in_pytorch, *map(mebibytes_of, names)]
    rows = [
        Benchmarked(name, one.aps, one.milliseconds, size)
        for name, one, size in zip(['PyTorch', *names], measured, sizes, strict=True)
    ]
    return BenchmarkResult(rows, count, lines=_table(rows))


def _table(rows: Sequence[Benchmarked]) -> list[str]:
    heads = ['', *(f'{kind} AP' for kind in rows[0].aps), 'ms per image', 'MiB']
    values = [[*(100 * ap for ap in row.aps.values()), row.milliseconds, row.mebibytes] for row in rows]
    return [table([heads, *([row.name, *(f'{one:.1f}' for one in of)] for row, of in zip(rows, values, strict=True))])]
