"""Initial values of DTN for training from random initialization: pilots that fix the constants of longer.py.

This plan was written before its first run. Data in `data`:

- `tiny_imagenet100/{train,val}/CLASS/*.jpg`: 100 classes of Tiny ImageNet, 24,000 and 5,000 images.
- `tiny_imagenet200`: see evidence.py.

    python projects/experiments/study/run.py projects/experiments/study/configs/start.py

Why: with 20 times the learning rate for lambda and P, DTN gained accuracy in short training (evidence.py). Earlier
trials with Swin-mini suggest that the values matter and not the rate: they used the end values of a run with 20
times the rate, or four constants, at the common rate. PVT-mini did not gain from either within 1,500 steps.

Pilots: 1,500 steps, one new seed (30), two pyramids and a ViT. The arms differ in DTN's initial values only:

- `DTN`: the paper's. lambda 0.5; P by Eq. 7.
- `DTN 20x`: the paper's, with 20 times the rate for lambda and P. `path.npz` of the run shows where they go.
- `start by place`: lambda of the mean 0.38 before the attention and 0.22 before the MLP, lambda of the variance 0.48
  and 0.55, a1 of Eq. 6 times 0.6, a2 and a3 times 1.7.
- `start everywhere`: lambda of the mean 0.3, of the variance 0.5, in every block; a1 times 0.6, a2 and a3 times 1.7.
  A norm needs no knowledge of its place for these.

Decision, by accuracy averaged over the three backbones: the better start is `start everywhere` unless `start by
place` is higher by more than 0.5 points (about one standard error of a difference of these averages). It is fixed
then, and is what longer.py trains. The pilots decide nothing else.

Result: 12.71 by place, 12.45 everywhere, 12.44 with 20 times the rate, 11.48 with the paper's values, so
`start everywhere`.

`swin_table`: Swin-mini as in evidence.py, LN with 20 times the rate for `relative_position_bias_table` (seed 10):
the question is whether any fast parameter of position gains what DTN's do.
"""

seeds = (10, 30)
custom_keys = 'optim_wrapper.paramwise_cfg.custom_keys'
stem = dict(stem_cfg=dict(type='PatchEmbed'))
dtn = dict(token_norm_cfg=dict(type='DTN'), **stem)
fast = dict(lr_mult=20.0, decay_mult=0.0)
wider = {'initial_values.width': 0.6, 'initial_values.offset': 1.7}
arms = {
    'DTN 20x': dtn | {custom_keys: {'.mean_logit': fast, '.var_logit': fast, '.position': fast}},
    'start by place': dtn | wider | {'initial_values.mean': (0.38, 0.22), 'initial_values.var': (0.48, 0.55)},
    'start everywhere': dtn | wider | {'initial_values.mean': (0.3, 0.3), 'initial_values.var': (0.5, 0.5)},
    'LN, table 20x': dict(token_norm_cfg=dict(type='LN', eps=1e-6), **stem)
    | {custom_keys: {'relative_position_bias_table': fast}},
}
contrasts = [('DTN 20x', 'DTN'), ('start by place', 'DTN'), ('start everywhere', 'DTN')]
contrasts += [('start everywhere', 'start by place'), ('start everywhere', 'DTN 20x')]
top1 = dict(metric='accuracy/top1')
pilot = dict(arms=('LN', 'DTN', 'DTN 20x', 'start by place', 'start everywhere'), seeds=(30,), **top1)
four_epochs = {'train_cfg.max_epochs': 4, 'param_scheduler.1.end': 4, 'optim_wrapper.optimizer.lr': 1e-3}
stages = dict(
    swin=dict(title='Initial values, Swin-mini, 1,500 steps', config='start/swin.py', **pilot),
    pvt_mini=dict(title='Initial values, PVT-mini, 1,500 steps', config='start/pvt_mini.py', **pilot),
    vit=dict(title='Initial values, ViT, 1,500 steps', config='start/vit.py', **pilot),
    swin_table=dict(
        title='Swin-mini, 200 classes, a fast bias table',
        config='evidence/swin.py',
        arms=('LN, table 20x',),
        seeds=(10,),
        options=four_epochs,
        **top1,
    ),
)
