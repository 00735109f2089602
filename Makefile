# Needs Python 3.10 to 3.13, a C++ compiler and 10 GB of free disk. `make` alone prints the help.
PYTHON ?= python3
VENV ?= .venv
VENV_PYTHON = $(VENV)/bin/python
# OpenMP threads that spin while they wait make a training many times slower where another program has the cores, and
# threads that sleep at once make it slower where none has: spin for a moment only.
export GOMP_SPINCOUNT ?= 20000

.PHONY: help env demo test

help:
	@echo 'make demo           set up and train the demo detector on the CPU (CONTROL=1: its LayerNorm control)'
	@echo 'make test           set up and run the tests (PYTEST_ARGS="-k dtn": some of them)'
	@echo 'make env            the set-up alone; all three do only what is not done yet'
	@echo 'PYTHON=python3.11   the interpreter that .venv is made from'
	@echo 'VENV=/path/to/env   another environment, new or existing (venv or conda prefix)'
	@echo 'TORCH_INDEX=URL     another index for torch and torchvision, e.g. https://download.pytorch.org/whl/cpu'
	@echo 'MMCV_INDEX=URL      compiled wheels of onedl-mmcv: an index, a page of links or a folder'

env:
	@$(PYTHON) tools/setup_env.py --venv "$(VENV)"

demo: env
	"$(VENV_PYTHON)" tools/demo.py $(if $(CONTROL),--control)

test: env
	"$(VENV_PYTHON)" -m pytest $(PYTEST_ARGS)
