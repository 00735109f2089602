"""Former Python names: each gives the present one with a warning, or says what there is instead."""

import importlib
import subprocess
import sys

import pytest

from tokennorm.moved import MODULES, NAMES

MOVED = {
    **{f'{old}.{name}': f'{new}.{name}' for old, new, name in [
        ('engine.options', 'plan.options', 'TrainOptions'),
        ('engine.recipe', 'plan.recipe', 'choose_config'),
        ('engine.data', 'plan.data', 'use_data_folder'),
        ('engine.schedule', 'plan.schedule', 'fit_schedule'),
        ('engine.epochs', 'plan.epochs', 'set_epochs'),
        ('engine.initial_weights', 'plan.initial_weights', 'use_initial_weights'),
        ('engine.augmentation', 'plan.augmentation', 'augment_strongly'),
        ('config.image_size', 'plan.image_size', 'short_side'),
        ('datasets.anchor_fit', 'plan.anchor_fit', 'anchor_fit'),
        ('inference.opening', 'commands.open_detector', 'Detector'),
        ('engine.class_rows', 'engine.class_layers', 'class_rows'),
        ('report.compare', 'report.comparison', 'Run'),
        ('engine.rules.data', 'engine.rules.datasets_and_loaders', 'unread_entry'),
        ('engine.rules.training', 'engine.rules.hooks_and_schedules', 'idle_custom_keys'),
        ('commands.detector', 'commands.open_detector', 'Detector'),
        ('export.detector', 'export.whole_detector', 'WholeDetector'),
        ('inference.detector', 'inference.torch_detector', 'TorchDetector'),
        ('config.detectors', 'config.detector_files', 'Named'),
        ('datasets.drawing', 'datasets.contact_sheet', 'palette'),
        ('checkpoints.finding', 'checkpoints.locating', 'CheckpointError'),
        ('datasets.finding', 'datasets.discovery', 'find_splits'),
        ('replace.masks', 'replace.token_masks', 'Mask'),
        ('datasets.coco.rules', 'datasets.coco.annotation_rules', 'judge'),
        ('engine.resume.schedule', 'engine.resume.resumed_schedule', 'follows_command'),
        ('checkpoints.reading', 'checkpoints.safe_reading', 'read_checkpoint'),
        ('checkpoints.writing', 'checkpoints.publication', 'for_publication'),
        ('config.reading', 'config.open_config', 'read_config'),
        ('console', 'base.console', 'say'),
        ('environment', 'base.environment', 'check_mmcv_ops'),
        ('fast_imports', 'base.fast_imports', 'DEFERRED'),
        ('files', 'base.files', 'in_home'),
        ('messages', 'base.messages', 'UserError'),
        ('ranks', 'base.ranks', 'print_once'),
        ('drawing', 'images.drawing', 'draw'),
        ('padding', 'images.padding', 'image_sizes_of'),
        ('pixels', 'images.pixels', 'read_image'),
        ('data_preprocessors', 'models.data_preprocessors', 'DetDataPreprocessor'),
        ('necks', 'models.necks', 'SimpleFeaturePyramid'),
        ('registered', 'models.registered', 'MODELS'),
        ('builder', 'layers.building', 'build_norm'),
        ('compat', 'registry.compat', 'make_mmengine_read_with'),
        ('detectors', 'models.masked_detectors', 'RetinaNet'),
        ('optim', 'models.layer_decay', 'LayerDecayOptimWrapperConstructor'),
        ('published', 'base.published', 'PUBLISHED'),
    ]},
    **{old: f'{new}.{old.rpartition(".")[2]}' for old, new in NAMES.items()},
}  # fmt: skip


@pytest.mark.parametrize(('old', 'new'), MOVED.items())
def test_former_name_gives_the_present_one(old, new):
    (module, _, name), (place, _, _) = old.rpartition('.'), new.rpartition('.')
    with pytest.warns(DeprecationWarning, match=f'tokennorm.{old} is tokennorm.{new} now'):
        former = getattr(importlib.import_module(f'tokennorm.{module}'), name)
    assert former is getattr(importlib.import_module(f'tokennorm.{place}'), name)


def test_former_module_is_an_attribute_of_the_package():
    import tokennorm.padding

    with pytest.warns(DeprecationWarning, match=r'tokennorm\.padding\.image_sizes_of is tokennorm\.images\.padding'):
        assert tokennorm.padding.image_sizes_of is importlib.import_module('tokennorm.images.padding').image_sizes_of


def test_each_former_module_is_tested():
    assert {name.rpartition('.')[0] for name in MOVED} >= set(MODULES)


@pytest.mark.parametrize(
    ('line', 'text'),
    [
        ('from tokennorm.engine.recipe import open_config', 'instead: tokennorm.plan.recipe.open_plan, whose `cfg` it'),
        ('import tokennorm.engine.checks', 'instead: tokennorm.engine.rules: verify'),
        ('from tokennorm.engine.checks import check_metrics', 'instead: tokennorm.engine.rules: verify'),
        ('from tokennorm import SaturationHook', 'instead: a forward hook of torch on DynamicTanh'),
    ],
)
def test_name_that_went_says_what_there_is(line, text):
    with pytest.raises(ImportError, match=text.replace('(', r'\(')):
        exec(line)


def test_unknown_names_are_pythons_own_errors():
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec('from tokennorm.engine.training import nothing')
    with pytest.raises(AttributeError, match="module 'tokennorm' has no attribute 'nothing'"):
        getattr(importlib.import_module('tokennorm'), 'nothing')  # noqa: B009
    with pytest.raises(AttributeError, match='__wrapped__'):  # which inspect and doctest ask every module for
        getattr(importlib.import_module('tokennorm.engine.recipe'), '__wrapped__')  # noqa: B009


def test_former_modules_import_nothing_by_themselves():
    code = 'import sys, tokennorm; from tokennorm.engine import recipe; print([m for m in sys.modules if "torch" in m])'
    assert subprocess.check_output([sys.executable, '-c', code], text=True).strip() == '[]'


def test_search_in_all_modules_finds_no_former_one():
    """As pickle searches for what does not know its module; each would import the present module, or raise."""
    code = (
        'import sys, pickle, tokennorm; before = {*sys.modules}; import scipy.special; '
        'pickle.dumps(scipy.special.expit); [hasattr(module, "main") for module in [*sys.modules.values()]]; '
        'print([name for name in sys.modules.keys() - before if name.startswith("tokennorm")])'
    )
    assert subprocess.check_output([sys.executable, '-c', code], text=True).strip() == '[]'
