"""`tokennorm.test`: evaluates a detector or a classifier."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokennorm.base.console import table
from tokennorm.base.files import check_output_file
from tokennorm.base.messages import UserError, in_python
from tokennorm.base.ranks import is_first_process, print_once
from tokennorm.commands.checks import check_choice, codes_of, optional_path
from tokennorm.commands.importing import import_openmmlab
from tokennorm.commands.opening import name_detector
from tokennorm.commands.result import Result
from tokennorm.findings import Findings, judging
from tokennorm.plan.options import check_data

SPLITS = ('train', 'val', 'test')


@dataclass(frozen=True)
class EvaluationResult(Result):
    """Result of `tokennorm.test`."""

    metrics: Mapping[str, float]  #: by name, such as `coco/bbox_mAP`, from 0 to 1 as in mmdet
    checkpoint: str  #: file or URL
    work_dir: Path  #: directory of logs and reports
    report: Path | None  #: report.html, with `report`

    def as_dict(self) -> dict[str, Any]:
        """Returns the metrics, which `tokennorm test --json` prints."""
        return super().as_dict()['metrics']


@in_python
def test(
    detector: Any,
    checkpoint: str | Path | None = None,
    *,
    data: str | Path | None = None,
    split: str | None = None,
    tta: bool = False,
    launcher: str = 'none',
    out: str | Path | None = None,
    predictions: str | Path | None = None,
    show: bool = False,
    show_dir: str | Path | None = None,
    report: bool = False,
    allow: Sequence[str] = (),
    strict: bool = False,
    cfg_options: Mapping[str, Any] | None = None,
) -> EvaluationResult:
    """Evaluates a detector or a classifier.

    Args:
        detector: As `tokennorm.Detector` takes it, or an open one, whose checkpoint is read again.
        checkpoint: Checkpoint of a config.
        data: Folder, or data.yaml of YOLO, that replaces the data of the config.
        split: 'train', 'val' or 'test'. None is test; of `data` without one, val.
        tta: Test-time augmentation: merge the boxes of each image and its mirror image, or of the views that the
            `tta_pipeline` of the config has.
        launcher: Job launcher.
        out: Directory of logs and reports; None is the folder test next to the checkpoint.
        predictions: Write the predictions to this .pkl file.
        show: Show the predictions in a window.
        show_dir: Draw predictions into this folder of the work directory.
        report: Write report.html into the work directory.
        allow: Codes of rules to overrule.
        strict: Warnings are errors.
        cfg_options: Entries of the config to set.

    Raises:
        UserError: for whatever ends `tokennorm test` with an error.
    """
    named = name_detector(detector, checkpoint, cfg_options)
    allow, out = codes_of(allow), optional_path('--out', out)
    data, predictions = optional_path('--data', data), optional_path('--predictions', predictions)
    check_choice('--launcher', launcher, ('none', 'pytorch', 'slurm', 'mpi'))
    check_data(data)
    if split is not None:
        check_choice('--split', split, SPLITS)
    if out is not None and out.suffix in ('.json', '.pkl', '.pickle'):
        raise UserError(f'--out {out} must be a folder; --predictions writes a .pkl file')
    if predictions is not None:
        if predictions.suffix not in ('.pkl', '.pickle'):
            raise UserError(f'--predictions {predictions} must end in .pkl')
        check_output_file(predictions)
    tta = tta or getattr(detector, 'tta', False)
    show_dir = None if show_dir is None else str(show_dir)
    found = Findings(allow, strict)
    import_openmmlab()
    from tokennorm.engine.lock import one_run

    with one_run() as built, judging(found):
        from mmdet.evaluation import DumpDetResults
        from mmengine.evaluator import DumpResults
        from mmengine.hooks import PrepareTTAHook

        from tokennorm.checkpoints import Checkpoint
        from tokennorm.checkpoints.locating import newest_checkpoint
        from tokennorm.config.build_errors import build_errors
        from tokennorm.config.tree import is_classifier
        from tokennorm.engine.distributed import end_together
        from tokennorm.engine.hooks.summary import describe_data
        from tokennorm.engine.runner import build_runner
        from tokennorm.evaluation.tta import use_tta
        from tokennorm.images.drawing import names_for_matplotlib
        from tokennorm.inference.embedded_config import embedded_config
        from tokennorm.plan.data import use_data_folder, use_test_split
        from tokennorm.plan.recipe import open_plan
        from tokennorm.plan.trained import use_trained_anchors, use_trained_size

        opened = Checkpoint.read(named.checkpoint)
        config = embedded_config(opened) if named.config == named.checkpoint else named.config
        plan = open_plan(config, out, named.cfg_options, launcher)
        found.allow(plan.cfg.get('allow') or ())
        if data is not None:
            needed = () if split is None else (split,)
            use_data_folder(plan, data, needed, fit_images=False, tested=split or 'test')
        elif split is not None:
            with plan.step(f'--split {split}', show=False):
                use_test_split(plan.cfg, split)
        use_trained_size(plan, opened.dataset_meta)
        use_trained_anchors(plan, opened.dataset_meta)
        plan.finish()
        cfg = plan.cfg
        cfg.load_from, cfg.resume = opened.source, False  # the config of a resumed run has True
        if out is None and 'work_dir' not in named.cfg_options and Path(named.checkpoint).exists():  # not a URL
            cfg.work_dir = str(Path(opened.source).parent)
        if out is None or newest_checkpoint(Path(cfg.work_dir)):  # the training run keeps its report and config
            cfg.work_dir = str(Path(cfg.work_dir) / 'test')
        classifier = is_classifier(cfg)
        if predictions is not None and not classifier:
            cfg.test_dataloader.batch_size = 1  # in the order of the dataset, as mmdet's tools read them
        if show or show_dir:
            drawing = dict(draw=True, test_out_dir=show_dir)
            if classifier:  # mmpretrain's hook
                drawing = dict(enable=True, out_dir=show_dir and str(Path(cfg.work_dir) / show_dir))
            cfg.default_hooks.visualization.update(show=show, wait_time=2, **drawing)
        print_once(f'Checkpoint: {opened}')
        if tta:
            merge, views = use_tta(cfg)
            print_once(views)
        runner = build_runner(cfg, ('test',), opened)
        runner.register_hook(built)
        if tta:
            runner.register_hook(PrepareTTAHook(merge))
        print_once(f'Data: {describe_data(cfg.test_dataloader.dataset, runner.test_dataloader)}')
        if predictions is not None:
            dump = DumpResults if classifier else DumpDetResults
            runner.test_evaluator.metrics.append(dump(out_file_path=str(predictions)))
        with build_errors():
            if (show or show_dir) and runner.test_loop:  # sets the names for drawings
                meta = runner.visualizer.dataset_meta or {}
                names = names_for_matplotlib(meta.get('classes') or ())
                runner.visualizer.dataset_meta = dict(meta, **dict(classes=names) if names else {})
            metrics = {name: float(value) for name, value in runner.test().items()}
        work_dir, page = Path(cfg.work_dir), None
        if report and is_first_process():
            from tokennorm.report.hook import report_on

            page = work_dir / 'report.html'
            report_on(runner, 'test', page, opened.source)
        end_together(runner)
    rows = [['from 0 to 100', 'AP', 'AP50', 'AP75']]
    for name in (name for name, value in metrics.items() if name.endswith('_mAP') and value >= 0):
        values = (metrics.get(key, -1) for key in (name, f'{name}_50', f'{name}_75'))
        rows.append([name, *(f'{100 * value:.1f}' if value >= 0 else '-' for value in values)])
    lines = [table(rows)] if len(rows) > 1 else []
    if page is not None:
        lines.append(f'The report is in {page}')
    lines.append(f'Metrics and log: {work_dir / runner.timestamp}')
    return EvaluationResult(metrics, opened.source, work_dir, page, lines=lines)
