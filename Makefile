# The names here are the same in the README, in CI and in habit: setup models demo cluster-demo test bench check fmt lint type.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LINKED := api topology runtime device_plugin scheduler_extender operator client cli crds

.DEFAULT_GOAL := help
.PHONY: help setup models demo cluster-demo test bench check fmt lint type links generate lock wheels clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with the locked dependencies

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed, $(PYTHON) is older: make PYTHON=/path/to/python3.11 …"; exit 1; }
	@echo "==> installing the locked dependencies into $(VENV) (about a minute the first time)"
	@$(PYTHON) -m venv $(VENV) || { echo "The venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }
	@$(BIN)/pip install --disable-pip-version-check --quiet --progress-bar on --require-hashes -r requirements.lock
	@$(BIN)/pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $@

models: setup ## Generate the sample models into ./models
	@$(BIN)/python -m tools.models resnet50 mlp --output models

demo: models ## Serve examples/resnet50.yaml and a trained model on this machine, and check their answers
	@$(BIN)/mcp2026 local -f examples/resnet50.yaml --port 0 --check
	@$(BIN)/python examples/magika_client.py --serve

cluster-demo: setup ## The same on a real Kubernetes on this machine (root)
	@$(BIN)/python -m tools.demo

test: setup ## Run all tests; says which levels it leaves out, and how to get them
	@$(BIN)/python -m tools.cluster prepare --level node $(if $(CI),--strict)
	@$(BIN)/python -m tools.cluster prepare --level kwok $(if $(CI),--strict)
	@$(BIN)/python -m tools.suite $(PYTEST_ARGS)

bench: setup ## Compare with other servers side by side; python -m bench --help for more
	@$(BIN)/python -m bench install
	@$(BIN)/python -m bench compare

check: lint type test ## All that CI runs

fmt: setup ## Format the code
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

lint: setup links ## Style, import layers, formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@PYTHONPATH=build/links $(BIN)/lint-imports --no-logo

type: setup links ## mypy, strict
	@$(BIN)/mypy
	@MYPYPATH=.:build/links $(BIN)/mypy -p tools
	@MYPYPATH=.:build/links $(BIN)/mypy -p bench

# mypy and the import linter do not follow an editable install that maps folders to package names.
links:
	@mkdir -p build/links/mcp2026
	@for package in $(LINKED); do ln -sfn ../../../$$package build/links/mcp2026/$$package; done

generate: setup links ## Write what is generated: contracts, the chart's CRDs, reference pages
	@PYTHONPATH=build/links $(BIN)/python -m mcp2026.device_plugin.kubelet.generate
	@$(BIN)/python -m tools.protobuf
	@PYTHONPATH=build/links $(BIN)/python -m mcp2026.client.open_inference.generate
	@$(BIN)/python -m tools.contract generate
	@$(BIN)/python -m tools.reference
	@cp crds/*.yaml deploy/helm/mcp2026/crds/

wheels: setup ## Collect the wheels of the container image into build/wheels
	@$(BIN)/python deploy/images/build_wheels.py

lock: setup ## Resolve the dependencies anew
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --extra dev pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --extra cpu --extra parquet -c requirements.lock pyproject.toml -o requirements-runtime.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --extra gpu --extra parquet -c requirements.lock pyproject.toml deploy/images/gpu.in -o deploy/images/requirements-runtime-gpu.lock

clean: ## Remove what was built in this folder, but for .venv and models; caches outside it stay
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
