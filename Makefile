# Ringmaster's front door: every target is one line that calls the program that does the work.
# `make` alone prints the help.

.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
INSTALL := requirements/install.sh
FAB := $(BIN)/fab
# Unit tests share no state, so they run on several cores; the rest shares one lab, and runs one after the other.
PYTEST = RINGMASTER_LAB="$$RM_LAB" PYTHONHASHSEED=0 $(BIN)/python -m pytest
# A role on its own doesn't tell ansible-lint where the modules and plugins are; and linting has no inventory.
LINT_PLAYBOOKS := ANSIBLE_INVENTORY_UNPARSED_FAILED=0 PATH="$$PWD/$(BIN):$$PATH" ANSIBLE_LIBRARY=playbooks/library ANSIBLE_ACTION_PLUGINS=playbooks/action_plugins ANSIBLE_FILTER_PLUGINS=playbooks/filter_plugins $(BIN)/ansible-lint -q --nocolor

# These variables count from the environment too. The list is closed: the others, and every new one, count from make's
# command line only, because users' shells have a NAME (WSL), CUDA, PORT or ENV of their own. Those stay untouched in
# the environment.
rm-from-environment := INVENTORY LIMIT NODES GPUS RANKS SCRIPT ARGS DATA RESUME LAUNCH_STYLE SECRETS DETACH DRY_RUN TAGS TRUST CHECK KEEP_PACKAGES REQUIREMENTS ENGINE UNEQUAL REGISTRY PURGE ONLY QUICK LAB PYTHON
# (Names of our own have a dash, which no variable of an environment has.)
rm-typed := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
# Every byte must arrive, but make expands `$` in a value that it exports (and runs a `$(shell …)` in it). So no variable
# is exported under its own name; this stands before the first $(shell), to which make 4.4 exports as well. Only
# NCCL_DEBUG stays in the environment, because jobs on this machine take it from there; typed, it is made a value that
# isn't expanded again.
unexport $(rm-from-environment) $(filter-out NCCL_DEBUG,$(rm-typed))
ifneq ($(filter NCCL_DEBUG,$(rm-typed)),)
  override NCCL_DEBUG := $(value NCCL_DEBUG)
endif
MAKEOVERRIDES :=

# What users may set. options.txt lists every option with its targets and its help, for fab as well. It is read as words
# such as NODES (a variable) and train/--nodes="$RM_NODES" (the flag that hands it to a target's program).
rm-options := launcher/commands/options.awk launcher/commands/options.txt
rm-words := $(shell awk -v show=words -f $(rm-options))
rm-variables := $(filter-out %",$(rm-words))
rm-flags = $(patsubst $(1)/%,%,$(filter $(1)/%,$(rm-words)))
ifeq ($(rm-variables),)
  $(error launcher/commands/options.txt can't be read: are it and awk there?)
endif
rm-unknown := $(filter-out $(rm-variables) MAKEOVERRIDES,$(rm-typed))
ifneq ($(rm-unknown),)
  $(error there is no variable '$(firstword $(rm-unknown))'; known: $(rm-variables))
endif
# Relative paths mean the folder that the user called from, which only the shell knows that started make -C
# (launcher/base/caller.py).
export RM_CALLER := $(if $(filter environment,$(firstword $(origin PWD))),$(value PWD))
# Recipes find each as RM_<name>, which $(value) fills byte for byte. A variable that doesn't count is empty there.
$(foreach name,$(rm-variables),$(eval export RM_$(name) = $(if $(filter $(name),$(rm-from-environment) $(rm-typed)),$$(value $(name)))))

##@ Prepare
.PHONY: provision
provision: control ## prepare every node of the inventory for training; a second run changes nothing
	@exec $(FAB) provision $(call rm-flags,provision)

.PHONY: image
image: control ## build the training image on the first node, and deliver it to every node (docs/image.md)
	@exec $(FAB) image $(call rm-flags,image)

.PHONY: verify
verify: control ## prove that every node is as provisioned, one line per node; changes nothing
	@exec $(FAB) verify $(call rm-flags,verify)

.PHONY: reset
reset: control ## take back exactly what provisioning added
	@exec $(FAB) reset $(call rm-flags,reset)

##@ Train
.PHONY: train
train: control ## run a job on NODES nodes, follow it, exit with its result
	@exec $(FAB) train $(call rm-flags,train)

.PHONY: status
status: control ## show the jobs on the nodes: state, age, step
	@exec $(FAB) status $(call rm-flags,status)

.PHONY: logs
logs: control ## follow a job (NAME) to its end and fetch its results; Ctrl-C leaves the job running
	@exec $(FAB) logs $(call rm-flags,logs)

.PHONY: stop
stop: control ## stop a job (NAME) on every node, with a checkpoint, and prove that nothing of it is left
	@exec $(FAB) stop $(call rm-flags,stop)

.PHONY: clean-runs
clean-runs: control ## remove old jobs from runs/, all but the newest KEEP (20); asks first
	@exec $(FAB) clean-runs $(call rm-flags,clean-runs)

.PHONY: bench
bench: everything ## measure, and write docs/performance.md; ONLY=step,recipe chooses, QUICK=1 shortens
	@exec $(FAB) bench $(call rm-flags,bench)

##@ Rehearse
.PHONY: lab
lab: control ## start a cluster of NODES container nodes on this machine, each with GPUS stand-in GPUs (docs/lab.md)
	@exec $(BIN)/python -m lab up $(call rm-flags,lab)

.PHONY: lab-down
lab-down: control ## remove every lab of this checkout
	@exec $(BIN)/python -m lab down $(call rm-flags,lab-down)

##@ Develop
.PHONY: test
test: everything ## run all tests; LAB=required fails where some of them can't run
	@$(PYTEST) -n auto --maxprocesses=4 --dist=worksteal tests/unit && $(PYTEST) --ignore=tests/unit

.PHONY: fuzz
fuzz: everything ## try random examples on the property tests for MINUTES; what fails can be pasted as @example
	@exec $(BIN)/python -m tests.support.fuzz $(call rm-flags,fuzz)

.PHONY: lint
lint: everything ## run all linters
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-logo --no-cache && $(BIN)/yamllint --strict . && $(LINT_PLAYBOOKS) && $(BIN)/shellcheck requirements/install.sh launcher/ssh/askpass.sh docker/install .ci/run lab/node_files/start-node lab/node_files/link-stand-ins lab/node_files/dmesg && $(BIN)/hadolint docker/Dockerfile

.PHONY: clean
clean: ## remove what make created here: .venv, caches, fetched data (runs/ is yours and stays)
	@if [ -d .lab ]; then { PYTHON="$$RM_PYTHON" $(INSTALL) control && $(BIN)/python -m lab down --all; } || { echo "ringmaster: nothing was cleaned, because the lab (.lab) could not be removed: fix the error above (a broken .venv: rm -rf .venv), then try again" >&2; exit 1; }; fi
	@rm -rf .venv data .mypy_cache .pytest_cache .ruff_cache .hypothesis && find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@if [ -d runs ]; then echo "kept: runs/ (your results); delete it yourself if you don't need it"; fi

##@ Help
.PHONY: help
help: ## show this list
	@awk -F '"' '/^version = / { print "Ringmaster " $$2 ": one PyTorch training cluster from ordinary GPU machines.  make <target> [VARIABLE=value …]" }' pyproject.toml
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile
	@printf '\nVariables that everybody needs (make help-all: every variable)\n'
	@awk -v show=help -f $(rm-options)

.PHONY: help-all
help-all: ## show every variable, by target
	@awk -v show=help-all -f $(rm-options)

# What a target needs is installed when the target is first used; afterwards this costs a comparison of files.
.PHONY: control
control:
	@PYTHON="$$RM_PYTHON" $(INSTALL) control

.PHONY: everything
everything:
	@PYTHON="$$RM_PYTHON" $(INSTALL) control trainer dev
