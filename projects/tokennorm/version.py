"""The package's version: read by setup.cfg and by `tokennorm.__version__`."""

__version__ = '1.3.0'
