"""The command `tokennorm` and the programs of tools/, one module per subcommand.

A module imports torch and the OpenMMLab packages inside `main`, so that `--help` takes a fraction of a second.
"""
