"""The commands as functions: `tokennorm.train`, `tokennorm.test` and so on, one module per command.

A function has the options of its command as keyword arguments, with their names and defaults. It raises `UserError`
for whatever ends the command with an error, prints progress, warnings and notes as the command does, and returns a
`Result`, which `cli/` prints. A module imports torch and the OpenMMLab packages inside its function, after the checks.
"""
