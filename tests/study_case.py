"""A study of a few seconds: 24 images of 64 x 64 pixels, two epochs of pretraining and one of detection."""

from pathlib import Path

from experiments.shapes import make_shapes_dataset
from experiments.study.plan import Study, load_study
from experiments.study.shape_classes import make_shape_classes_dataset

CONFIGS = Path(__file__).resolve().parents[1] / 'projects' / 'experiments' / 'study' / 'configs'
STUDY = """
seeds = {seeds}
stages = dict(
    pretrain=dict(config='pretrain.py', metric='accuracy/top1'),
    retinanet=dict(config='retinanet.py', metric='coco/bbox_mAP', start='pretrain'),
)
"""
PRETRAIN = """
_base_ = '{configs}/cpu/pretrain_pvt-mini_shape-classes.py'
train_cfg = dict(max_epochs=2)
train_dataloader = dict(batch_size=8, num_workers={workers}, dataset=dict(data_root='{data}/classes'))
val_dataloader = dict(dataset=dict(data_root='{data}/classes'))
"""
RETINANET = """
_base_ = '{configs}/cpu/retinanet_pvt-mini_fpn_shapes.py'
train_cfg = dict(max_epochs=1)
train_dataloader = dict(batch_size=4, dataset=dict(data_root='{data}/shapes'))
val_dataloader = dict(dataset=dict(data_root='{data}/shapes'))
val_evaluator = dict(ann_file='{data}/shapes/annotations/val.json')
model = dict(test_cfg=dict(score_thr=0.0))
"""


def make_study(folder: Path, seeds: tuple[int, ...] = (0,), workers: int = 0, name: str = 'runs') -> Study:
    """Writes the configs and the data of a miniature study into a folder; `name` is the name of its work directory."""
    make_shape_classes_dataset(folder / 'data' / 'classes', num_train=24, num_val=12, image_size=64)
    make_shapes_dataset(folder / 'data' / 'shapes', num_train=4, num_val=3, image_size=64)
    values = dict(configs=CONFIGS, data=folder / 'data', seeds=seeds, workers=workers)
    for file, text in (('study', STUDY), ('pretrain', PRETRAIN), ('retinanet', RETINANET)):
        (folder / f'{file}.py').write_text(text.format(**values))
    return load_study(folder / 'study.py', folder / name)
