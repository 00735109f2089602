"""Functions whose code seems to lie in a package, for what looks at the files of a traceback."""

from pathlib import Path

import tokennorm


def code_of(file, text, **names):
    """Returns a function of any arguments that runs a statement, as code of this file."""
    source = f'def function(*arguments):\n    {text}\n'
    exec(compile(source, str(file), 'exec'), names)
    return names['function']


def own_code(text, **names):
    """As `code_of`, in the package."""
    return code_of(Path(tokennorm.__file__).with_name('some_module.py'), text, **names)
