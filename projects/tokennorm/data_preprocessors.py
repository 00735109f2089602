"""mmdet's data preprocessor, which also tells the backbone what is padding. Registered where mmdet can be imported."""

from typing import Any

from tokennorm.padding import note_image_sizes
from tokennorm.registry import MODELS

try:
    from mmdet.models.data_preprocessors import DetDataPreprocessor as HostDetDataPreprocessor
except ImportError:  # there are no detectors here, and backbones and norms need none
    HostDetDataPreprocessor = None

if HostDetDataPreprocessor is not None:

    @MODELS.register_module()
    class DetDataPreprocessor(HostDetDataPreprocessor):
        """mmdet's `DetDataPreprocessor`, with the size of each image noted on the padded batch.

        With it DTN takes the statistics of each image from that image alone; with mmdet's own it takes those of the
        padded batch. Arguments as mmdet's.
        """

        def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
            """Images of (C, H_i, W_i) and their samples to a batch (B, C, H, W), `inputs`, and `data_samples`."""
            data = super().forward(data, training)
            if data['data_samples'] is not None:
                note_image_sizes(data['inputs'], [sample.img_shape[:2] for sample in data['data_samples']])
            return data
