"""Accuracy of a study's finished classifiers on corrupted images, added to their records."""

from statistics import mean

from tokennorm.engine.runner import build_runner
from tokennorm.research.robustness.evaluation import ACCURACY, CorruptedTest, choose_images
from tokennorm.research.robustness.names import CORRUPTIONS
from tokennorm.research.robustness.results import CLEAN
from tokennorm.research.study.plan import Run, Study
from tokennorm.research.study.records import read_record, write_record

SEVERITIES = (1, 3, 5)


def add_corrupted(study: Study, run: Run, images: int) -> dict[str, float] | None:
    """Evaluates a finished classifier on validation images, evenly spaced, with the 15 corruptions of ImageNet-C.

    Returns:
        Top-1 accuracy in per cent on the clean images, and per corruption its mean over `SEVERITIES`, as the run's
        record now has it under `corrupted`; None if the run has no weights here.
    """
    folder = study.folder(run)
    record = read_record(folder)
    if record is None or not (folder / 'weights.pth').is_file():
        return None
    if record.get('corrupted', {}).get('images') == images:
        return record['corrupted']
    cfg = study.run_config(run)
    cfg.merge_from_dict(dict(load_from=str(folder / 'weights.pth'), work_dir=str(folder / 'corrupted')))
    cfg.log_level = 'WARNING'
    choose_images(cfg, images, None)
    test = CorruptedTest(build_runner(cfg, splits=('test',)), classifier=True)
    accuracies = {'images': images, 'clean': test.run(CLEAN)[ACCURACY]}
    for corruption in CORRUPTIONS:
        accuracies[corruption] = round(mean(test.run((corruption, severity))[ACCURACY] for severity in SEVERITIES), 3)
    record['corrupted'] = accuracies
    write_record(folder, record)
    return accuracies
