"""A small recipe that was built once, for rules to judge: each case changes a copy of it."""

import io
from argparse import ArgumentParser
from collections import OrderedDict
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import replace

from mmengine.config import Config

from tests.helpers.trained import CONFIG, options
from tokennorm.cli.arguments import add_options_argument
from tokennorm.engine.rules import Built
from tokennorm.engine.runner import build_runner
from tokennorm.findings import JUDGEMENTS, Findings, judging
from tokennorm.plan.options import TrainOptions
from tokennorm.plan.recipe import apply_options, open_plan


def build_recipe(data, work_dir):
    """Builds RetinaNet on a small PVT for a folder of shapes."""
    parser = ArgumentParser()
    add_options_argument(parser)
    plan = open_plan(CONFIG, work_dir, parser.parse_args(['--cfg-options', *options(data)]).cfg_options)
    apply_options(plan, TrainOptions(CONFIG))
    with judging(Findings()), redirect_stdout(io.StringIO()):
        return Built.of(build_runner(plan.cfg, ('train', 'val')), ('train', 'val'))


def copy_of(built):
    """Returns a copy whose parts can be changed."""
    model, hooks = _copied(built.model), list(built.hooks)
    parts = dict(cfg=Config(deepcopy(built.cfg.to_dict())), model=model, hooks=hooks)
    parts |= dict(data=deepcopy(built.data), metrics=deepcopy(built.metrics), schedulers=deepcopy(built.schedulers))
    return replace(built, **parts, loops=dict(built.loops))


def _copied(model):
    """Returns a deep copy. A module has eleven dictionaries for hooks, whose copies would take most of the time."""
    values = [value for module in model.modules() for value in vars(module).values()]
    return deepcopy(model, {id(one): OrderedDict() for one in values if isinstance(one, OrderedDict) and not one})


def sets(**values):
    """Returns a change: it sets parts, attributes and entries by their paths, with __ for dots."""

    def change(built):
        for path, value in values.items():
            *above, last = path.split('__')
            node = built
            for name in above:
                node = _child(node, name)
            if isinstance(node, list | dict | Config):
                node[int(last) if isinstance(node, list) else last] = value
            else:
                setattr(node, last, value)

    return change


def _child(node, name):
    if isinstance(node, list | tuple):
        return node[int(name)]
    return node[name] if isinstance(node, dict | Config) and name in node else getattr(node, name)


def judge(code, built):
    """Applies one rule."""
    for rule, find in (judgement for of_phase in JUDGEMENTS.values() for judgement in of_phase):
        if rule.code == code:
            for line in find(built):
                rule.report(*line)


def findings_of(code, built, **more):
    """Returns what one rule finds."""
    with judging(Findings(**more)) as found:
        judge(code, built)
    return found
