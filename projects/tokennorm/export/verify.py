"""Compares the AP of an exported file with that of PyTorch."""

from dataclasses import dataclass
from pathlib import Path

from mmengine.utils import track_iter_progress

from tokennorm.datasets.splits import CocoSplit
from tokennorm.evaluation.average_precision import average_precision
from tokennorm.evaluation.results import CocoResults
from tokennorm.inference.detector import TorchDetector
from tokennorm.inference.runtime import ExportedDetector
from tokennorm.messages import UserError


@dataclass(frozen=True)
class Comparison:
    """AP of one kind of prediction, in 0..1, by an exported file and by PyTorch."""

    kind: str
    exported: float
    pytorch: float
    images: int
    tolerance: float  # difference that makes them different

    @property
    def equal(self) -> bool:
        """Whether the two differ by less than the tolerance."""
        return abs(self.exported - self.pytorch) < self.tolerance

    def __str__(self) -> str:
        aps = f'exported {100 * self.exported:.2f}, PyTorch {100 * self.pytorch:.2f}'
        differ = 'differ by less than' if self.equal else 'differ by at least'
        return f'{self.kind} AP on {self.images} images: {aps}: they {differ} {100 * self.tolerance:g}'


def compare(trained: TorchDetector, path: Path, split: CocoSplit, tolerance: float) -> list[Comparison]:
    """Compares AP of boxes, and of masks where there are any, of an exported file with that of its PyTorch model.

    Both are evaluated from the image files on, with all of their detections.

    Raises:
        ValueError: for annotations without images or without a class of the detector, and for an unreadable image.
    """
    ids = {category['name']: category['id'] for category in split.content['categories']}
    exported = ExportedDetector(path)
    missing = [name for name in exported.classes if name not in ids]
    if missing:
        raise UserError(f'the annotations have no class {missing[0]!r}; their classes are {", ".join(ids)}')
    images = split.content['images']
    if not images:
        raise UserError(f'{split.source} has no images')
    category_ids = [ids[name] for name in exported.classes]
    found: dict[object, list] = {exported: [], trained: []}
    for image in track_iter_progress(images):
        file = split.image_dir / image['file_name']
        for detector, annotations in found.items():
            annotations += [a | dict(image_id=image['id']) for a in detector([file], 0.0)[0].annotations(category_ids)]
    print()
    kinds = ['bbox', 'segm'] if exported.metadata['mask_threshold'] is not None else ['bbox']
    aps = {kind: [all_detections_ap(split.content, a, kind) for a in found.values()] for kind in kinds}
    return [Comparison(kind, *pair, len(images), tolerance) for kind, pair in aps.items()]


def all_detections_ap(ground_truth: dict, annotations: list[dict], kind: str) -> float:
    """Returns COCO's AP at IoU 0.5 to 0.95, in 0..1, counting all detections in an image, not only the 100 best."""
    limits = [1, 10, max(100, len(annotations))]
    results = CocoResults.from_annotations(annotations)
    return max(average_precision(results.evaluate(ground_truth, kind, max_dets=limits)), 0.0)
