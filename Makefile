# Needs Python 3.10 to 3.13 and 10 GB of free disk. `make` alone prints the help.
PYTHON ?= python3
VENV ?= .venv
VENV_PYTHON = $(VENV)/bin/python
# OpenMP threads that spin while they wait make a training run many times slower where another program has the cores,
# and threads that sleep at once make it slower where none has: spin for a moment only.
export GOMP_SPINCOUNT ?= 20000

# One test of each kind of program: backbones and norms, one epoch and the report, predict, resume after SIGKILL, export
# --verify, mmdet's own tools/train.py.
ORIGINALS = $(wildcard tests/test_backbones_*.py) $(wildcard tests/test_export*.py) tests/test_norms_contract.py \
    tests/test_tools.py tests/test_engine_resume_killed.py tests/test_inference_detector.py tests/test_mmdet_tools.py \
    projects/mmcv_ops/tests

.PHONY: help env demo test originals lint docs

help:
	@echo 'make demo           set up and train the demo detector on the CPU (CONTROL=1: its LayerNorm control)'
	@echo 'make test           set up, then run make lint and the fast tests (PYTEST_ARGS="-k dtn": some of them)'
	@echo 'make originals      a smoke test on the originals of the OpenMMLab packages, in $(VENV)-originals'
	@echo 'make lint           set up and run ruff, import-linter and mypy'
	@echo 'make docs           set up and build the documentation into build/docs (OFFLINE=1: without links to other projects)'
	@echo 'make env            set up only. Each target sets up only what is not done yet'
	@echo 'PYTHON=python3.11   the interpreter that .venv is made from'
	@echo 'VENV=/path/to/env   another environment, new or existing (venv or conda prefix)'
	@echo 'TORCH_INDEX=URL     another index for torch and torchvision, e.g. https://download.pytorch.org/whl/cpu'

env:
	@VENV="$(VENV)" PYTHON="$(PYTHON)" tools/setup_env.sh

demo: env
	"$(VENV_PYTHON)" tools/demo.py $(if $(CONTROL),--control)

test: lint
	"$(VENV_PYTHON)" -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

originals: env
	UV_PROJECT_ENVIRONMENT="$(VENV)-originals" UV_PYTHON="$(VENV_PYTHON)" "$(VENV)/bin/uv" sync --frozen \
	    --no-default-groups --group originals --group tests --group export --no-install-package onedl-mmsegmentation
	"$(VENV)-originals/bin/python" -m tokennorm.cli.check_env
	"$(VENV)-originals/bin/python" -m pytest -n auto --dist worksteal -m 'not gpu' $(ORIGINALS)

lint: env
	"$(VENV_PYTHON)" -m ruff check .
	"$(VENV_PYTHON)" -m ruff format --check .
	"$(VENV)/bin/lint-imports"
	"$(VENV_PYTHON)" -m mypy

docs: env
	"$(VENV_PYTHON)" -m pip install --quiet --requirement requirements/docs.txt
	"$(VENV_PYTHON)" -m codespell_lib --ignore-words-list dota,fo --skip '*.ipynb,*.json,*.png,*.jpg' README.md AGENTS.md llms.txt CONTRIBUTING.md SECURITY.md docs projects
	"$(VENV_PYTHON)" -m sphinx -n -W --keep-going -q -b html docs build/docs
	@echo 'The site: file://$(CURDIR)/build/docs/index.html'
