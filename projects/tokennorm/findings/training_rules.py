"""Rules about configs and checkpoints: what would train another model than was meant, or nothing."""

from tokennorm.findings.rule import Rule

# fmt: off
TRAINING_RULES = (
    Rule('poor-anchors', 'warning', 'anchors that match few of the boxes', about='config',
         why='Objects without a matching anchor are hardly learned.',
         do='Set the sizes that the line names with --cfg-options'),
    Rule('unscaled-size', 'warning', 'entries that look like sizes in pixels, and are not scaled with the image size',
         about='config', why='A crop or a filter of the old size does not fit images of the new one.',
         do='Set them with --cfg-options'),
    Rule('schedule-length', 'warning', 'the learning rate schedule does not end with training', about='config',
         why='The rate may never fall, or fall long before the end. Schedules of that kind exist on purpose.',
         do='Set the ends of param_scheduler, or leave it to --epochs'),
)
# fmt: on
