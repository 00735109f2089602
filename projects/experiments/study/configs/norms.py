"""Six norms in the blocks of PVT-mini, on the whole of Tiny ImageNet: 200 classes, 99,998 / 10,000 images, 4 epochs.

This plan was written before the first run of RMSNorm, DyT, Derf and PRepBN. LN and DTN are the runs of evidence.py.
Every arm changes `token_norm_cfg` only, as DTN does: the other norms stay LN. All have LN's learning rate of 1e-3 (also
DTN's best), not one of their own. DyT and Derf begin with alpha = 0.5, as published. PRepBN's weight of
LayerNorm falls to zero in 2,500 of 3,128 iterations: 0.8 of the schedule, as published for 300 epochs of ImageNet.

Seed 10 first. A norm within a point of LN is trained with seeds 11 and 12 too. That rule repeats only norms that change
nothing, so PRepBN, the best of them with seed 10, was given both seeds afterwards. Data and terms: see evidence.py.

    python projects/experiments/study/run.py projects/experiments/study/configs/norms.py --jobs 2
"""

seeds = (10, 11, 12)
stem = dict(stem_cfg=dict(type='PatchEmbed'))
arms = {
    'RMSNorm': dict(token_norm_cfg=dict(type='RMSNorm', eps=1e-6), **stem),
    'DyT': dict(token_norm_cfg=dict(type='DyT'), **stem),
    'Derf': dict(token_norm_cfg=dict(type='Derf'), **stem),
    'PRepBN': dict(token_norm_cfg=dict(type='PRepBN', eps=1e-6, steps=2500), **stem),
}
four_epochs = {'train_cfg.max_epochs': 4, 'param_scheduler.1.end': 4, 'optim_wrapper.optimizer.lr': 1e-3}
stages = dict(
    pvt_mini=dict(
        title='Norms, PVT-mini, 200 classes',
        config='evidence/pvt_mini.py',
        metric='accuracy/top1',
        arms=('LN', 'RMSNorm', 'DyT', 'Derf', 'PRepBN', 'DTN'),
        options=four_epochs,
    )
)
