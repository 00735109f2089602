"""Evaluates a detector or a classifier.

examples:
  tokennorm test WORK_DIR
  tokennorm test CONFIG CHECKPOINT --data DIR --report
  tokennorm test detector-1a2b3c4d.pth --data DIR    # a published file
"""

import argparse
from pathlib import Path

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, add_training_options, use_detector
from tokennorm.cli.command import Parser, add_json, command, import_openmmlab, print_json
from tokennorm.console import say
from tokennorm.files import check_output_file
from tokennorm.findings import Findings, judging
from tokennorm.plan.options import check_data
from tokennorm.ranks import is_first_process, print_once


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    add_detector_arguments(parser)
    add_options_argument(parser)
    work_dir = dict(help='directory of logs and reports; default: the folder test next to the checkpoint')
    groups = add_training_options(parser, ('data', 'launcher', 'work_dir', 'allow', 'strict'), work_dir=work_dir)
    data, output = groups['data'], groups['output']
    output.add_argument('--out', type=Path, help='write the predictions to this .pkl file')
    output.add_argument('--show', action='store_true', help='show the predictions in a window')
    output.add_argument('--show-dir', help='draw predictions into this folder of the work directory')
    output.add_argument('--report', action='store_true', help='write report.html into the work directory')
    data.add_argument(
        '--tta',
        action='store_true',
        help='test-time augmentation: merge the boxes of each image and its mirror image, or of the views that the '
        'tta_pipeline of the config has',
    )
    add_json(parser)
    args = parser.parse_args(argv)
    if args.out is not None and args.out.suffix not in ('.pkl', '.pickle'):
        parser.error(f'--out {args.out} must end in .pkl')
    return args


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    use_detector(args)
    check_data(args.data)
    if args.out is not None:
        check_output_file(args.out)
    with judging(Findings(args.allow, args.strict)):
        evaluate(args)


def evaluate(args: argparse.Namespace) -> None:
    """Evaluates, and prints and writes what the arguments ask for."""
    import_openmmlab()
    from mmdet.evaluation import DumpDetResults
    from mmengine.evaluator import DumpResults
    from mmengine.hooks import PrepareTTAHook

    from tokennorm.checkpoints import Checkpoint
    from tokennorm.checkpoints.finding import newest_checkpoint
    from tokennorm.config.build_errors import build_errors
    from tokennorm.config.tree import is_classifier
    from tokennorm.drawing import names_for_matplotlib
    from tokennorm.engine.distributed import end_together
    from tokennorm.engine.hooks.summary import describe_data
    from tokennorm.engine.runner import build_runner
    from tokennorm.evaluation.tta import use_tta
    from tokennorm.findings import current
    from tokennorm.inference.embedded_config import embedded_config
    from tokennorm.plan.data import use_data_folder
    from tokennorm.plan.recipe import open_plan
    from tokennorm.plan.trained import use_trained_anchors, use_trained_size

    is_local = Path(args.checkpoint).exists()
    checkpoint = Checkpoint.read(args.checkpoint)
    config = embedded_config(checkpoint) if args.config == args.checkpoint else args.config
    plan = open_plan(config, args.work_dir, args.cfg_options, args.launcher)
    current().allow(plan.cfg.get('allow') or ())
    if args.data is not None:
        use_data_folder(plan, args.data, needed=(), fit_images=False)
    use_trained_size(plan, checkpoint.dataset_meta)
    use_trained_anchors(plan, checkpoint.dataset_meta)
    plan.finish()
    cfg = plan.cfg
    cfg.load_from, cfg.resume = checkpoint.source, False  # the config of a resumed run has True
    if args.work_dir is None and 'work_dir' not in (args.cfg_options or {}):
        cfg.work_dir = str(Path(checkpoint.source).parent if is_local else Path(cfg.work_dir))
    if args.work_dir is None or newest_checkpoint(Path(cfg.work_dir)):  # the training run keeps its report and config
        cfg.work_dir = str(Path(cfg.work_dir) / 'test')
    classifier = is_classifier(cfg)
    if args.out is not None and not classifier:
        cfg.test_dataloader.batch_size = 1  # predictions in the order of the dataset, as mmdet's tools read them
    if args.show or args.show_dir:
        drawing = dict(draw=True, test_out_dir=args.show_dir)
        if classifier:  # mmpretrain's hook
            drawing = dict(enable=True, out_dir=args.show_dir and str(Path(cfg.work_dir) / args.show_dir))
        cfg.default_hooks.visualization.update(show=args.show, wait_time=2, **drawing)
    print_once(f'Checkpoint: {checkpoint}')
    if args.tta:
        merge, views = use_tta(cfg)
        print_once(views)
    runner = build_runner(cfg, ('test',), checkpoint)
    if args.tta:
        runner.register_hook(PrepareTTAHook(merge))
    print_once(f'Data: {describe_data(cfg.test_dataloader.dataset, runner.test_dataloader)}')
    if args.out is not None:
        dump = DumpResults if classifier else DumpDetResults
        runner.test_evaluator.metrics.append(dump(out_file_path=str(args.out)))
    with build_errors():
        if (args.show or args.show_dir) and runner.test_loop:  # sets the names for drawings
            meta = runner.visualizer.dataset_meta or {}
            names = names_for_matplotlib(meta.get('classes') or ())
            runner.visualizer.dataset_meta = dict(meta, **dict(classes=names) if names else {})
        metrics = runner.test()
    if args.json and is_first_process():
        values = {name: float(value) for name, value in metrics.items()}  # AP is from 0 to 1, as mmdet has it
        print_json(values)
    for name in (name for name, value in metrics.items() if name.endswith('_mAP') and value >= 0):
        others = [f'AP{key} {100 * metrics[f"{name}_{key}"]:.1f}' for key in ('50', '75') if f'{name}_{key}' in metrics]
        print_once(', '.join([f'{name}, from 0 to 100: AP {100 * metrics[name]:.1f}', *others]))
    if args.report and is_first_process():
        path = Path(cfg.work_dir) / 'report.html'
        from tokennorm.report.hook import report_on

        report_on(runner, 'test', path, checkpoint.source)
        say(f'The report is in {path}')
    print_once(f'Metrics and log: {Path(cfg.work_dir) / runner.timestamp}')
    end_together(runner)
