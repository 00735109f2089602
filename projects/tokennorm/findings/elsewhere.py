"""Rules that modules report which import torch. `tokennorm rules` lists them without it, in a fraction of a second."""

from tokennorm.findings import Rule

UNREAD_ENTRY = Rule('unread-entry', 'warning', 'nothing reads an entry of the config', about='config',
    why='It changes nothing: its name is misspelled, or it is a variable that the base of the config has used already.',
    do='Correct its name, set the entry that was meant, or remove it')  # fmt: skip
POOR_ANCHORS = Rule('poor-anchors', 'warning', 'anchors that match few of the boxes', about='config',
    why='Objects without a matching anchor are hardly learned.',
    do='Set the sizes that the line names with --cfg-options')  # fmt: skip
UNSCALED_SIZE = Rule('unscaled-size', 'warning',
    'entries that look like sizes in pixels, and are not scaled with the image size', about='config',
    why='A crop or a filter of the old size does not fit images of the new one.',
    do='Set them with --cfg-options')  # fmt: skip
SCHEDULE_LENGTH = Rule('schedule-length', 'warning', 'the learning rate schedule does not end with training',
    about='config',
    why='The rate may never fall, or fall long before the end. Schedules of that kind exist on purpose.',
    do='Set the ends of param_scheduler, or leave it to --epochs')  # fmt: skip
NON_FINITE_WEIGHTS = Rule('non-finite-weights', 'error', 'the checkpoint has values that are NaN or infinite',
    about='checkpoint',
    why='Training diverged before it was saved, or the file is damaged. A detector with them finds nothing, without an '
        'error. `tokennorm publish` has no `--allow`.',
    do='Use an earlier checkpoint')  # fmt: skip
