# Every target first makes its own virtual environment; it needs nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
FAST := not slow and not browser and not broker and not cluster and not kills and not docs
CHECKED := src tests benchmark bench examples docs
export OMP_NUM_THREADS ?= 1
export NO_MKDOCS_2_WARNING := 1

.PHONY: help demo serve test test-fast tests lint types bench pretrain docs pages clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/.installed  ## finds the odd trips of a simulated person; writes pictures to demo/
	$(BIN)/astray demo

serve: $(VENV)/.installed  ## runs the live service with simulated people; prints the page's address, Ctrl-C ends it
	$(BIN)/astray serve demo

test: lint types tests  ## runs everything that continuous integration runs

test-fast: $(VENV)/.installed  ## runs the tests that need no browser, broker, cluster or long fit: under 90 s on two cores
	$(BIN)/pytest -n 2 --dist worksteal -m "$(FAST)"

tests: $(VENV)/.installed  ## runs all tests
	$(BIN)/pytest -n 2 --dist worksteal

lint: $(VENV)/.installed  ## checks style and format
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED) README.md

types: $(VENV)/.installed  ## checks types
	$(BIN)/mypy

bench: $(VENV)/.installed-bench  ## measures what the claims rest on; takes a while
	$(BIN)/python bench/trpo.py
	$(BIN)/python bench/parts.py
	$(BIN)/python bench/speed.py
	$(BIN)/python bench/arrays.py
	$(BIN)/python bench/detection.py

pretrain: $(VENV)/.installed  ## learns the shipped reward again; takes some minutes
	$(BIN)/astray pretrain -o src/astray/model/pretrained.safetensors

docs: $(VENV)/.installed  ## builds the documentation in site/; open site/index.html, offline too
	$(BIN)/mkdocs build --strict --quiet

pages: $(VENV)/.installed  ## writes into the pages what was measured, and what their examples print
	$(BIN)/python docs/make_results.py
	$(BIN)/python docs/run_examples.py --write

clean:  ## removes everything that make has made
	rm -rf $(VENV) site demo bench/out .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml benchmark/pyproject.toml constraints.txt
	@echo "installing astray with torch and the test tools: about 2.5 GB, which takes some minutes"
	$(PIP) -e ".[dev]" -e "benchmark[baselines]"
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(PIP) -e ".[dev,bench]" -e "benchmark[baselines]"
	touch $@
