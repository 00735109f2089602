"""`TrainedDetector`: `Detector` in PyTorch."""

from tokennorm.commands.detector import Detector
from tokennorm.inference.detector import TorchDetector


@Detector.register
class TrainedDetector(TorchDetector):
    """A detector in PyTorch with the methods of `Detector`."""

    test, export = Detector.test, Detector.export


Detector.register(TorchDetector)
