"""A training run, step by step."""

from pathlib import Path

import torch
from mmengine.runner import Runner

from tokennorm.base.ranks import print_once
from tokennorm.config.tree import is_classifier
from tokennorm.datasets.finding import find_splits
from tokennorm.engine.distributed import end_together, use_device
from tokennorm.engine.lock import locked_work_dir, one_run
from tokennorm.engine.rules import Built, verify
from tokennorm.engine.runner import build_runner, run
from tokennorm.findings import Findings, current, judging
from tokennorm.moved import former_names
from tokennorm.plan.changes import Plan
from tokennorm.plan.data import use_data_folder
from tokennorm.plan.initial_weights import InitialWeights, use_initial_weights
from tokennorm.plan.options import TrainOptions
from tokennorm.plan.recipe import (
    apply_options,
    choose_config,
    chosen_config,
    config_of_run,
    config_to_resume,
    find_resumed,
    open_plan,
    use_earlier_run,
)
from tokennorm.plan.schedule import fit_to_training
from tokennorm.plan.trained import note_sizes, use_trained_anchors

SPLITS = ('train', 'val')
__getattr__ = former_names(__name__)


def run_training(options: TrainOptions) -> tuple[Runner, Path]:
    """Trains with checked options, and returns the runner and the work directory as the user names it."""
    with one_run(options.seed is not None) as built, judging(Findings(options.allow, options.strict)) as findings:
        if options.device is not None:
            use_device(options.device)
        plan, weights = plan_training(options)
        findings.show()
        work_dir = Path(plan.cfg.work_dir)
        with locked_work_dir(work_dir):
            runner = build_runner(plan.cfg, SPLITS, weights.checkpoint)
            runner.fitted = fit_to_training(runner, plan, options)
            verify('schedule', Built.of(runner, ('train',)))
            runner.register_hook(built)
            run(runner, how_to_continue='--resume continues from the latest.')
        end_together(runner)
    return runner, work_dir


def plan_training(options: TrainOptions) -> tuple[Plan, InitialWeights]:
    """Returns the plan of a training run, whose config is whole, and its initial weights."""
    # Recipe: the one that is named, or one that fits the data; with the user's entries.
    config, splits = options.config, None
    if options.config is None:
        splits = find_splits(options.data)
        name, reason = config_to_resume(options) or choose_config(
            splits, options.model, options.norm, options.stem, torch.cuda.is_available()
        )
        print_once(f'Config: {reason}')
        config = chosen_config(name)
    plan = open_plan(config, options.out, options.cfg_options, options.launcher)
    current().allow(plan.cfg.get('allow') or ())  # of a written config

    # Beginning: a run to resume, or initial weights. The directory of another run is refused.
    resumed = find_resumed(plan.cfg, options)
    before = set() if resumed is None else set(config_of_run(resumed).get('allow') or ())
    if before - current().allowed:  # the run that is resumed has allowed more
        current().allow(before)
        if splits is not None:
            current().forget()
            splits = None  # read again
    with plan.step('--init', show=False):
        weights = use_initial_weights(plan, options)
    if resumed is not None:
        use_earlier_run(plan, resumed, options)
    elif weights.checkpoint is not None:
        use_trained_anchors(plan, weights.checkpoint.dataset_meta)

    # Data: classes, heads, limits, image size, and anchors, which a resumed run keeps.
    if options.data is not None:
        verify('own data', Built(plan.cfg))
        fit_anchors = options.config is None and resumed is None
        use_data_folder(plan, options.data, SPLITS, options.image_size, fit_anchors=fit_anchors, splits=splits)

    # Everything else that options change: the length, augmentation, hooks.
    apply_options(plan, options, resumed)
    if not is_classifier(plan.cfg):
        note_sizes(plan, options.data is not None)
    with plan.step('--allow and --resume', show=False):
        if allowed := sorted(current().allowed):
            plan.cfg.allow = allowed
        if options.resume and resumed is not None:
            plan.cfg.resume = 'auto' if options.resume is True else str(options.resume)
    if options.resume and resumed is None:
        print_once(f'--resume: no checkpoint in {plan.cfg.work_dir}; training starts from the beginning')
    if not options.resume or resumed is None:
        print_once(*filter(None, [weights.description]))
    return plan, weights
