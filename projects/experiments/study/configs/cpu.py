"""The study at CPU size: 24 training runs on generated data, about an hour of one core in all.

python projects/experiments/study/run.py projects/experiments/study/configs/cpu.py --jobs 2
python projects/experiments/study/run.py projects/experiments/study/configs/cpu.py \\
    --report --from docs/study/results/cpu --docs docs/study
"""

title = 'LayerNorm or DTN, plain stem or Dual PatchNorm, at CPU size'
seeds = (0, 1, 2)
inside = 'retinanet'
data = {
    'data/study_shape_classes': dict(maker='shape_classes', num_train=3600, num_val=600, image_size=64),
    'data/study_shapes': dict(maker='shapes', num_train=400, num_val=150, image_size=128),
}
stages = dict(
    pretrain=dict(config='cpu/pretrain_pvt-mini_shape-classes.py', metric='accuracy/top1'),
    retinanet=dict(config='cpu/retinanet_pvt-mini_fpn_shapes.py', metric='coco/bbox_mAP', start='pretrain'),
)
notes = """The generated images, the learning rates and the numbers of epochs were chosen before the study, from
training runs of the LN arm with seed 100 and the same validation images. Three of them were pretraining runs, after
which the surfaces of the shapes were made stronger until they were learnt. One was the beginning of a detector run.
Of the other arms only the time of an epoch was looked at. All arms have the same settings, and nothing was tuned for
DTN or DPN. The images are generated and easy compared with photographs. The backbone has 1.7 million parameters, and
its grids of tokens are small (16 x 16 to 2 x 2 in pretraining, 32 x 32 to 4 x 4 in detection). A detector is
initialized with the pretrained weights of the same arm and seed.

Seen when the first runs had ended: the pretraining task is unfavourable to Dual PatchNorm. The surfaces that its
classes have (plain, stripes and speckle) differ most in the contrast within patches of 4 x 4 pixels, and DPN's first
norm removes that contrast. This cause was not tested in this study, and the task was left as it was. [The study on
real images](real.md) shows what the norm removes.

The kept results hold the last epoch of each run, and the minutes of each arm as a mean over its seeds. The curves
were drawn when the runs ended."""
