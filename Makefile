# Every target makes its own virtual environment first; nothing else is needed than Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: demo serve test lint types tests bench pretrain docs clean

demo: $(VENV)/.installed  ## the main job on a simulated city; pictures go to demo/
	$(BIN)/astray demo

serve: $(VENV)/.installed  ## the live service with simulated people; prints the page's address, Ctrl-C ends it
	$(BIN)/astray serve demo

test: lint types tests  ## what continuous integration runs

lint: $(VENV)/.installed
	$(BIN)/ruff check src tests benchmark bench examples docs
	$(BIN)/ruff format --check src tests benchmark bench examples docs README.md

types: $(VENV)/.installed
	$(BIN)/mypy

tests: $(VENV)/.installed
	$(BIN)/pytest -n 2 --dist worksteal

bench: $(VENV)/.installed-bench  ## the measurements behind the claims; takes a while
	$(BIN)/python bench/trpo.py
	$(BIN)/python bench/parts.py
	$(BIN)/python bench/speed.py
	$(BIN)/python bench/arrays.py
	$(BIN)/python bench/detection.py

pretrain: $(VENV)/.installed  ## makes src/astray/model/pretrained.safetensors again; some minutes
	$(BIN)/astray pretrain -o src/astray/model/pretrained.safetensors

docs: $(VENV)/.installed  ## the reference from the docstrings; into the pages what was measured, and what their examples print
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_results.py
	$(BIN)/python docs/run_examples.py --write

clean:
	rm -rf $(VENV) demo bench/out .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml benchmark/pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]" -e "benchmark[baselines]"
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,bench]" -e "benchmark[baselines]"
	touch $@
