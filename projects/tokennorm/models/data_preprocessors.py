"""mmdet's data preprocessor, which also tells the backbone what is padding. Registered if mmdet can be imported."""

from typing import Any

from tokennorm.images.padding import note_image_sizes
from tokennorm.registry import MODELS

try:
    from mmdet.models.data_preprocessors import DetDataPreprocessor as MMDetDataPreprocessor
except ImportError:  # backbones and norms work without mmdet
    pass
else:

    @MODELS.register_module()
    class DetDataPreprocessor(MMDetDataPreprocessor):
        """mmdet's `DetDataPreprocessor` that also notes the size of each image on the padded batch.

        DTN then computes the statistics of each image without the padding. With mmdet's own data preprocessor the
        padding counts as image. The arguments are mmdet's.
        """

        notes_image_sizes = True

        def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
            """Images (C, H_i, W_i) and their samples -> `inputs`, a batch (B, C, H, W), and `data_samples`."""
            data = super().forward(data, training)
            if data['data_samples'] is not None:
                note_image_sizes(data['inputs'], [sample.img_shape[:2] for sample in data['data_samples']])
            return data
