"""mmdet's detectors whose result for an image does not depend on the padding around it. Registered if mmdet can be
imported."""

from typing import Any

from tokennorm.registry import MODELS
from tokennorm.replace import mask_padding

try:
    from mmdet.models import detectors
except ImportError:  # backbones and norms work without mmdet
    pass
else:

    class _PaddingMasked:
        """The class before it in a detector: applies `mask_padding` to what was built."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            mask_padding(self)

    @MODELS.register_module()
    class RetinaNet(_PaddingMasked, detectors.RetinaNet):
        """mmdet's `RetinaNet` with `tokennorm.mask_padding`.

        The arguments are mmdet's; `data_preprocessor` must be `tokennorm.DetDataPreprocessor`.
        """

    @MODELS.register_module()
    class FasterRCNN(_PaddingMasked, detectors.FasterRCNN):
        """mmdet's `FasterRCNN` with `tokennorm.mask_padding`.

        The arguments are mmdet's; `data_preprocessor` must be `tokennorm.DetDataPreprocessor`.
        """

    @MODELS.register_module()
    class MaskRCNN(_PaddingMasked, detectors.MaskRCNN):
        """mmdet's `MaskRCNN` with `tokennorm.mask_padding`.

        The arguments are mmdet's; `data_preprocessor` must be `tokennorm.DetDataPreprocessor`.
        """
