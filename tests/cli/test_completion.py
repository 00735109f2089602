"""`tokennorm --completion SHELL`."""

import shutil
import subprocess
import sys

import pytest

from tokennorm.cli.main import COMMANDS, main

TRY = """
source completion
try() {
  COMP_WORDS=(tokennorm "$@"); COMP_CWORD=$#; COMPREPLY=()
  $(complete -p tokennorm | sed 's/.*-F \\([^ ]*\\).*/\\1/') tokennorm "${@: -1}" "${@: -2:1}"
  echo "${COMPREPLY[@]}"
}
try tr; try train --ep; try train --norm d; try train --data fol; try compare --ou
"""


def test_a_shell_that_is_not_known_and_a_package_that_is_missing(monkeypatch):
    with pytest.raises(SystemExit, match='--completion csh: expected bash, zsh or fish'):
        main(['--completion', 'csh'])
    monkeypatch.setitem(sys.modules, 'shtab', None)
    with pytest.raises(SystemExit, match=r'shtab.*pip install shtab'):
        main(['--completion', 'bash'])


@pytest.mark.parametrize('shell', ['zsh', 'fish'])
def test_each_subcommand_has_its_options(shell, capsys):
    pytest.importorskip('shtab')
    main(['--completion', shell])
    text = capsys.readouterr().out
    for words in (*COMMANDS, 'image-size', 'score-thr'):
        assert words in text


def test_bash_completes_subcommands_options_choices_and_paths(capsys, tmp_path):
    pytest.importorskip('shtab')
    if shutil.which('bash') is None:
        pytest.skip('no bash')
    main(['--completion', 'bash'])
    (tmp_path / 'completion').write_text(capsys.readouterr().out, encoding='utf-8')
    (tmp_path / 'folder').mkdir()
    done = subprocess.run(['bash', '-c', TRY], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ['train', '--epochs', 'dtn', 'folder', '--out']
