"""The study at CPU size: 24 trainings on generated data, in about an hour on two cores.

python tools/study.py configs/study/cpu.py --jobs 2
"""

title = 'LayerNorm or DTN, plain stem or Dual PatchNorm, at CPU size'
seeds = (0, 1, 2)
data = {
    'data/study_shape_classes': dict(maker='shape_classes', num_train=3600, num_val=600, image_size=64),
    'data/study_shapes': dict(maker='shapes', num_train=400, num_val=150, image_size=128),
}
stages = dict(
    pretrain=dict(config='cpu/pretrain_pvt-mini_shape-classes.py', metric='accuracy/top1'),
    retinanet=dict(config='cpu/retinanet_pvt-mini_fpn_shapes.py', metric='coco/bbox_mAP', start='pretrain'),
)
notes = """The learning rates and numbers of epochs were chosen before the study, by watching single trainings of the
LN arm alone with seed 100, so that it learns well within the time; they are the same for all arms and were not tuned
for any other. The images are generated and easy beside photographs, the model has 1.8 million parameters, and the
grids of tokens are small (16 x 16 to 2 x 2 in pretraining, 32 x 32 to 4 x 4 in detection)."""
