# Needs Python 3.10 to 3.13 and 10 GB of free disk. `make` alone prints the help.
PYTHON ?= python3
VENV ?= .venv
VENV_PYTHON = $(VENV)/bin/python

# Backbones, norms and operators; one epoch with predictions; export --verify; resume after SIGKILL; mmdet's own tools.
ORIGINALS = $(filter-out %/test_compile.py %/test_replaced_norms.py, $(wildcard tests/backbones/test_*.py)) \
    tests/norms/test_contract.py tests/stories/test_mmdet_tools.py \
    tests/cli/test_train.py::test_training_writes_checkpoint_and_report \
    tests/cli/test_predict.py::test_predictions_on_a_folder_are_those_of_mmdet \
    tests/cli/test_export.py::test_a_written_file_has_the_ap_of_pytorch \
    tests/stories/test_killed.py::test_a_training_that_is_killed_again_and_again \
    projects/mmcv_ops/tests/test_names.py projects/mmcv_ops/tests/test_compiled_values.py

.PHONY: help env demo test slow originals peers style lint docs dist

help:
	@echo 'make demo           install what the demo needs, and train its detector (CONTROL=1: its LayerNorm control)'
	@echo 'make test           set up, then run make lint and the fast tests (PYTEST_ARGS="-k dtn": some, after ruff and mypy)'
	@echo 'make slow           set up and run all slow tests, which takes an hour or more'
	@echo 'make originals      a smoke test on the originals of the OpenMMLab packages, in $(VENV)-originals'
	@echo "make peers          timm's own tests on models with DTN; fails on a difference that tests/peers/expected.txt has not"
	@echo 'make lint           set up and run ruff, import-linter, mypy and the checks of docs and files in tests/repository'
	@echo 'make docs           set up and build the documentation into build/docs (OFFLINE=1: without links to other projects)'
	@echo 'make dist           build wheels and sdists into dist/, check them, and try the wheels with PYTHON, without the clone'
	@echo 'make env            set up only. Each target sets up only what is not done yet'
	@echo 'PYTHON=python3.11   the interpreter that .venv is made from'
	@echo 'VENV=/path/to/env   another environment, new or existing (venv or conda prefix)'
	@echo 'TORCH_INDEX=URL     another index for torch and torchvision, e.g. https://download.pytorch.org/whl/cpu'

env:
	@VENV="$(VENV)" PYTHON="$(PYTHON)" tools/setup_env.sh

demo:
	@VENV="$(VENV)" PYTHON="$(PYTHON)" tools/setup_env.sh --no-default-groups --group detection --no-install-package triton
	"$(VENV_PYTHON)" tools/demo.py $(if $(CONTROL),--control)

# With PYTEST_ARGS without the checks of docs and files.
test: $(if $(PYTEST_ARGS),style,lint)
	"$(VENV_PYTHON)" -m pytest -n auto --dist loadfile --ignore tests/repository $(PYTEST_ARGS)

slow: env
	"$(VENV_PYTHON)" -m pytest -n auto --dist loadfile -m 'slow and not gpu'

originals: env
	UV_PROJECT_ENVIRONMENT="$(VENV)-originals" UV_PYTHON="$(VENV_PYTHON)" "$(VENV)/bin/uv" sync --frozen \
	    --no-default-groups --group originals --group tests --group export --no-install-package onedl-mmsegmentation
	"$(VENV)-originals/bin/python" -m tokennorm.cli.check_env
	"$(VENV)-originals/bin/python" -m pytest -n auto --dist loadfile -m 'not gpu' $(ORIGINALS)

peers: env
	"$(VENV_PYTHON)" tests/peers/run.py

style: env
	"$(VENV_PYTHON)" -m ruff check .
	"$(VENV_PYTHON)" -m ruff format --check .
	"$(VENV)/bin/lint-imports"
	"$(VENV_PYTHON)" -m mypy

lint: style
	"$(VENV_PYTHON)" -m pytest -n auto --dist loadfile tests/repository

docs: env
	"$(VENV_PYTHON)" -m pip install --quiet --requirement requirements/docs.txt
	"$(VENV_PYTHON)" -m codespell_lib --ignore-words-list dota,fo,tood --skip '*.ipynb,*.json,*.png,*.jpg' README.md AGENTS.md llms.txt CONTRIBUTING.md SECURITY.md docs projects
	"$(VENV_PYTHON)" -m sphinx -n -W --keep-going -q -b html docs build/docs
	@echo 'The site: file://$(CURDIR)/build/docs/index.html'

dist: env
	@VENV="$(VENV)" PYTHON="$(PYTHON)" tools/dist.sh
