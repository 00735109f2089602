"""The study at CPU size: 24 training runs on generated data, about an hour of one core in all.

python projects/experiments/study/run.py projects/experiments/study/configs/cpu.py --jobs 2
"""

seeds = (0, 1, 2)
data = {
    'data/study_shape_classes': dict(maker='shape_classes', num_train=3600, num_val=600, image_size=64),
    'data/study_shapes': dict(maker='shapes', num_train=400, num_val=150, image_size=128),
}
stages = dict(
    pretrain=dict(
        title='Pretraining on generated classes',
        config='cpu/pretrain_pvt-mini_shape-classes.py',
        metric='accuracy/top1',
    ),
    retinanet=dict(
        title='RetinaNet on generated images',
        config='cpu/retinanet_pvt-mini_fpn_shapes.py',
        metric='coco/bbox_mAP',
        start='pretrain',
    ),
)
