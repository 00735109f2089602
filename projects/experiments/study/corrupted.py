"""Accuracy of a study's finished classifiers on corrupted images, added to their records."""

from statistics import mean

from experiments.robustness.evaluation import ACCURACY, CorruptedTest, choose_images
from experiments.robustness.names import CORRUPTIONS
from experiments.robustness.results import CLEAN
from experiments.study.page import SEVERITIES
from experiments.study.plan import Run, Study
from experiments.study.records import is_finished, read_record, write_record
from tokennorm.engine.build import build_runner


def add_corrupted(study: Study, run: Run, images: int) -> dict[str, float] | None:
    """Evaluates a finished classifier on validation images, evenly spaced, with the 15 corruptions of ImageNet-C.

    Its record gets an entry `corrupted`: the number of images, and top-1 accuracy in per cent, on the clean images and
    for each corruption as the mean over `SEVERITIES`.

    Returns:
        The entry; None for a detector and for a run that is not finished.
    """
    folder = study.folder(run)
    if study.stages[run.stage].metric != ACCURACY or not (folder / 'weights.pth').is_file() or not is_finished(folder):
        return None
    cfg = study.run_config(run)
    cfg.merge_from_dict(dict(load_from=str(folder / 'weights.pth'), work_dir=str(folder / 'corrupted')))
    cfg.log_level = 'WARNING'
    cfg.test_dataloader = cfg.val_dataloader
    choose_images(cfg, images, None)
    test = CorruptedTest(build_runner(cfg, splits=('test',)), classifier=True)
    entry = {'images': len(test.images), 'clean': test.run(CLEAN)[ACCURACY]}
    for corruption in CORRUPTIONS:
        entry[corruption] = round(mean(test.run((corruption, severity))[ACCURACY] for severity in SEVERITIES), 3)
    write_record(folder, read_record(folder) | dict(corrupted=entry))
    return entry
