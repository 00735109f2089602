"""What one labeling program does in its own way: a file per program, applied before the readers of the formats.

- `ADAPTERS` change COCO content as read from JSON.
- `READERS` read formats of annotation files of many images.
- `YOLO_FILES` read files in place of a `data.yaml`.
- `TURN_BOX` changes a box of Pascal VOC.

A program's dialect is added here, and nowhere else.
"""

from tokennorm.datasets.programs import cvat, darknet, dota, label_studio, lvis, open_images, roboflow, supervision
from tokennorm.datasets.programs.reader import Reader

ADAPTERS = (lvis.use_urls, roboflow.leave_out_group, supervision.read_pieces, cvat.read_brush_masks, cvat.turn_boxes)
READERS: tuple[Reader, ...] = (cvat.READER, open_images.READER, dota.READER)
YOLO_FILES = (darknet.read, label_studio.read)
TURN_BOX = cvat.turn_box_of_xml

__all__ = ['ADAPTERS', 'READERS', 'TURN_BOX', 'YOLO_FILES', 'Reader']
