"""A training run, step by step."""

from functools import partial
from pathlib import Path

import torch
from mmengine.runner import Runner

from tokennorm.base.messages import UserError, shorten
from tokennorm.base.ranks import print_once
from tokennorm.checkpoints.locating import newest_checkpoint
from tokennorm.config.tree import is_classifier
from tokennorm.datasets.discovery import find_splits
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
    names_to_choose,
    open_plan,
    use_earlier_run,
)
from tokennorm.plan.schedule import fit_to_training
from tokennorm.plan.trained import note_sizes, use_trained_anchors

SPLITS = ('train', 'val')
__getattr__ = former_names(__name__)


def run_training(options: TrainOptions) -> tuple[Runner, Path]:
    """Trains with checked options, and returns the runner and the work directory as the user names it."""
    with one_run(options.seed is not None) as built, judging(Findings(options.allow, options.strict)):
        if options.device is not None:
            use_device(options.device)
        plan, weights = plan_training(options)
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
    # Rules that a written config or the run to resume allows are known before data is read.
    open_config = partial(open_plan, work_dir=options.out, options=options.cfg_options, launcher=options.launcher)
    plan = None if options.config is None else open_config(options.config)
    resumed, splits = None if plan is None else find_resumed(plan.cfg, options), None
    current().allow((plan and plan.cfg.get('allow')) or ())
    current().allow(allowed_by_run(default_run(options) if plan is None else resumed))

    # Recipe: the one that is named, or one that fits the data; with the user's entries.
    if plan is None:
        splits = find_splits(options.data)
        name, reason = config_to_resume(options) or choose_config(
            splits, options.model, options.norm, options.stem, torch.cuda.is_available()
        )
        print_once(f'Config: {reason}')
        plan = open_config(chosen_config(name))
        resumed = find_resumed(plan.cfg, options)

    # Beginning: a run to resume, or initial weights. The directory of another run is refused.
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


def default_run(options: TrainOptions) -> Path | None:
    """Returns the directory of the run to resume where data chooses the config, and with it the default directory.

    Raises:
        UserError: where several could be meant, which allow different rules for reading the data.
    """
    sets = options.cfg_options or {}
    if isinstance(options.resume, str | Path):
        return Path(options.resume).parent
    if not (options.resume or sets.get('resume')):
        return None
    named = sets.get('work_dir') or options.out
    folders = [Path(named)] if named else [Path('work_dirs', name) for name in sorted(names_to_choose(options))]
    runs = [folder for folder in folders if newest_checkpoint(folder)]
    if len({frozenset(allowed_by_run(run)) for run in runs}) > 1:
        names = shorten(list(map(str, runs)))
        raise UserError(f'--resume: the runs in {names} allow different rules; name the one to resume with --out')
    return runs[0] if runs else None


def allowed_by_run(folder: Path | None) -> list[str]:
    """Returns the codes of the rules that a run has allowed."""
    return [] if folder is None else list(config_of_run(folder).get('allow') or ())
