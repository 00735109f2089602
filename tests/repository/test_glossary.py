"""Words and spellings that the project does not use, in the package, experiments, configs, tools, docs and tests."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ('projects', 'configs', 'tools', 'benchmarks', 'tests', 'docs')
SUFFIXES = ('.py', '.md', '.yml', '.sh', '.cpp', '.h')
REPLACEMENTS = {
    r'(?<![a-z])(go|goes|going|gone|went)[ _]on(?![a-z])': 'continue, resume',
    r'(?<![a-z])goes[ _]before': 'takes precedence over',
    r'(?<![a-z])stands?[ _](in|for)(?![a-z])': 'is in, replaces',
    r'(?<![a-z])twin(?!e\b|s[_\]])': 'variant',
    r'(reduction of keys)': 'spatial reduction (SR)',
    r'work[ _]folder': 'work directory (`work_dir`)',
    r'(?<![a-z])mend(s|ed|ing)?(?![a-z])': 'fix',
    r'whole number': 'integer',
    r'\bset-up\b': 'setup',
    r'hand-made': 'custom',
    r'plain (form|arithmetic)': 'reference implementation, eager implementation',
    r'token norms?\b': 'token normalization layer',
    r'(is|are)[ _]not[ _]there(?![a-z])': 'not found, does not exist',
    r'(?<!there)[ _](is|are)[ _]no[ _](?!longer|more)': 'is not a',
    r'[\d}] %(?=\W* [a-z(]|[.,;:)"\']|$)': '95%, without a space',
    r'colour|neighbour|behaviour|favour|honour|(?<![a-z])centr(e|ing)|licence|catalogue|artefact': 'American',
    r'(initial|normal|random|recogn|optim|quant|summar|serial|local|general|real|synchron)is(e|ing|ation)': '-iz-',
    r'(label|model|cancel|travel)l(ed|ing)|analys(e[drs]?|ing)\b': 'labeled, modeling, analyze',
}


def test_glossary():
    any_of_them = re.compile('|'.join(f'(?:{pattern})' for pattern in REPLACEMENTS))
    files = [path for name in FOLDERS for path in (ROOT / name).rglob('*') if path.suffix in SUFFIXES]
    assert len(files) > 400
    found = []
    for path in (ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *sorted(files)):
        text = '' if path == Path(__file__).resolve() else path.read_text().lower()
        for match in any_of_them.finditer(text):
            instead = next(
                word for pattern, word in REPLACEMENTS.items() if re.search(pattern, match[0], re.IGNORECASE)
            )
            found.append(f'{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}: {instead}')
    assert found == []
