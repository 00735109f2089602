"""Which part of a patch's statistics helps, the means or the log deviation, and what does Dual PatchNorm take away?

This plan was written before its first run. PVT-mini, the whole of Tiny ImageNet, 4 epochs, as in evidence.py;
patches of 4 x 4 pixels. LN in the blocks.

    python projects/experiments/study/run.py projects/experiments/study/configs/stems.py

Arms: the plain stem and Dual PatchNorm; each alone, with a linear layer of the mean of each channel (`+mean`), and
with one of the log deviation of the patch (`+deviation`). Seeds 40 and 41, which no other plan has. The rate of 1e-3
is the best of three for LN with the plain stem and was not tuned for the others.

How it is read, by the differences of the tables; the last epoch counts:

- If DPN+mean - DPN is at least three quarters of plain - DPN, the loss by Dual PatchNorm is that of the means.
- If plain+deviation is above plain in both seeds and its interval excludes zero, the log deviation is what helps, and
  the docs name the plain stem with statistics instead of Dual PatchNorm for small images.
- If plain+mean is above plain in both seeds and its interval excludes zero, the plain stem learns the means too slowly,
  as they are linear functions of its pixels; the docs then name a larger rate of the projection as untried.
- Otherwise the docs say that no part was shown to help.

Expected standard error of a difference: 0.41 points (deviation of a run 0.35, two seeds, images 0.22).
"""

seeds = (40, 41)
ln = dict(token_norm_cfg=dict(type='LN', eps=1e-6))
plain, dual = 'PatchEmbedWithStatistics', 'DualPatchEmbedWithStatistics'
arms = {
    'plain+mean': dict(**ln, stem_cfg=dict(type=plain, part='mean')),
    'plain+deviation': dict(**ln, stem_cfg=dict(type=plain, part='deviation')),
    'DPN+mean': dict(**ln, stem_cfg=dict(type=dual, part='mean')),
    'DPN+deviation': dict(**ln, stem_cfg=dict(type=dual, part='deviation')),
}
contrasts = [('DPN+mean', 'LN+DPN'), ('DPN+deviation', 'LN+DPN')]
stages = dict(
    pvt_mini=dict(
        title='Parts of the statistics, PVT-mini, 200 classes',
        config='stems/pvt_mini.py',
        metric='accuracy/top1',
        arms=('LN', 'plain+mean', 'plain+deviation', 'LN+DPN', 'DPN+mean', 'DPN+deviation'),
        options={'train_cfg.max_epochs': 4, 'param_scheduler.1.end': 4, 'optim_wrapper.optimizer.lr': 1e-3},
    )
)
