# Evenkeel: build, test, show. "make" lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Go's own tarball unpacks here; a shell that is not a login shell may not know of it.
export PATH := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin

# libvirt_dlopen: no libvirt headers to build, the library is found at run time.
# hashicorpmetrics: Raft's metrics reach our own Prometheus registry.
export EVENKEEL_TAGS := libvirt_dlopen,hashicorpmetrics
# No version control stamps: they fail in a checkout that belongs to another user (CI), and VERSION has the same facts.
# No paths of this machine, in programs and tests alike: otherwise each package is compiled once for either.
override GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false -trimpath)
export GOFLAGS
GO      ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILD   := $(GO) build -tags $(EVENKEEL_TAGS) -ldflags '-X main.version=$(VERSION)'

export EVENKEEL_GUEST := $(CURDIR)/build/guest

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | while IFS=$$'\t' read -r t d; do printf '  make %-12s %s\n' "$$t" "$$d"; done

.PHONY: setup
setup: ## install what is missing: Debian packages, Go modules, the test guest
	@scripts/setup.sh

.PHONY: setup-lint
setup-lint:
	@scripts/setup.sh lint

.PHONY: build
build: ## bin/vcd, bin/vcctl and, where it is in the tree, bin/vcsim
	@mkdir -p bin
	CGO_ENABLED=1 $(BUILD) -o bin/vcd ./cmd/vcd
	CGO_ENABLED=0 $(BUILD) -o bin/vcctl ./cmd/vcctl
	$(if $(wildcard cmd/vcsim/*.go),CGO_ENABLED=0 $(BUILD) -o bin/vcsim ./cmd/vcsim)

.PHONY: demo
demo: setup build ## the main job on this machine: real VMs, capped, scaled, refused, deleted
	@$(GO) build -o bin/ ./test/lab/cmd/accel ./test/lab/cmd/labhost
	@scripts/demo.sh

.PHONY: demo-simulated
demo-simulated: build ## the same on twelve simulated hosts, with no libvirt at all, in seconds
	@scripts/demo.sh simulated

.PHONY: demo-lab
demo-lab: setup build ## three hosts in a lab on this machine: a re-balance, a drain, a simulation; guests run on while they move
	@$(GO) build -o bin/ ./test/lab/cmd/accel ./test/lab/cmd/labhost
	@scripts/demo-lab.sh

.PHONY: test
test: setup ## all tests, those on real libvirt and QEMU included
	@scripts/test.sh unit real

.PHONY: ci
ci: ready-ci ## all that must pass: lint, build, tests with the race detector, fuzzing, demo
	@scripts/test.sh lint race fuzz $(STAGES) image programs real clients demo machines

# Downloads take the network, and the programs the CPU.
.PHONY: ready-ci
ready-ci:
	@scripts/setup.sh lint browser & setup=$$!; failed=0; $(MAKE) --no-print-directory build || failed=1; wait $$setup || failed=1; exit $$failed

# Without a limit of go test's: each wait of the run has its own.
.PHONY: chaos
chaos: setup ## faults by seed on three real hosts, and whether all promises were kept: SEED=n TIME=5m KINDS=kill,net,stop,power,disk,slow,files,clock; logs in build/chaos
	@scripts/fetch-qemu.sh
	@EVENKEEL_REAL=1 EVENKEEL_QEMU=$(CURDIR)/build/qemu EVENKEEL_CHAOS_SEED=$(SEED) EVENKEEL_CHAOS_TIME=$(TIME) EVENKEEL_CHAOS_KINDS=$(KINDS) EVENKEEL_CHAOS_OUT=$(CURDIR)/build/chaos \
		$(GO) test -tags $(EVENKEEL_TAGS) -count 1 -timeout 0 -v -run 'TestChaos$$' ./test/chaos

.PHONY: bench
bench: ## benchmarks of every package (figures for people, no pass or fail)
	$(GO) test -tags $(EVENKEEL_TAGS) -run '^$$' -bench . -benchmem ./...

.PHONY: bench-solvers
bench-solvers: ## exact against GLPK (glpsol) and CBC (cbc), where they are installed
	$(GO) test -run '^$$' -bench Solvers -benchtime 1x ./test/solvers

.PHONY: bench-migration
bench-migration: ## plans against the exact optimum (cbc or glpsol), a bound and hbal, where these are installed; takes hours, CASES=20 less
	$(GO) test -run '^$$' -bench 'Bound|Anytime|Hbal|Optimum' -benchtime 1x -timeout 0 ./migration $(if $(CASES),-args -cases $(CASES))

.PHONY: bench-caps
bench-caps: setup ## how well CPU caps hold on this machine's real QEMU
	$(GO) run -tags $(EVENKEEL_TAGS) ./test/lab/cmd/bench-caps

.PHONY: bench-cluster
bench-cluster: ## one server and 12 simulated hosts; then three servers, 1,000 hosts and 10,000 VMs: CPU, memory, admissions a second, restarts; as root, hosts run at lower priority than servers, because real hosts have CPUs of their own (ARGS="--hosts-nice 0": not)
	CGO_ENABLED=0 $(GO) build -tags $(EVENKEEL_TAGS) -o bin/vcsim ./cmd/vcsim
	bin/vcsim cluster
	bin/vcsim cluster --servers 3 --hosts 1000 --vms 10000 --largest 8 $(if $(filter 0,$(shell id -u)),--hosts-nice 10) $(ARGS)

.PHONY: bench-forecast
bench-forecast: ## all forecasts scored on published traces, as a table: DATA="FILE...", ARGS="--vms 40"; docs/reproduction/forecasts.md says where to get them
	CGO_ENABLED=0 $(GO) build -tags $(EVENKEEL_TAGS) -o bin/vcsim ./cmd/vcsim
	bin/vcsim forecast --data $(or $(DATA),$(error DATA="FILE..." names the traces)) -o markdown $(ARGS)

.PHONY: packages
packages: ## Debian packages of vcd and vcctl in build/packages; the same commit gives the same bytes
	@packaging/build.sh

.PHONY: test-packages
test-packages: packages ## looks into the packages, installs and removes them in a small Debian, boots it, builds them again
	@packaging/test.sh
	@packaging/boot-test.sh

.PHONY: test-machines
test-machines: packages machine-image ## a whole Debian under emulation, with KVM, cgroup v2, systemd and a watchdog that resets it: RUN=TestVcd: one test; SHORT=1 leaves out some checks, and says which; MACHINE=trixie: Debian 13
	@EVENKEEL_MACHINES=1 EVENKEEL_MACHINE=$(MACHINE) $(GO) test -tags $(EVENKEEL_TAGS) -count 1 -timeout 0 -v $(if $(SHORT),-short) $(if $(RUN),-run '$(RUN)') ./test/machines

.PHONY: setup-browser
setup-browser:
	@scripts/setup.sh browser

.PHONY: test-browser
test-browser: setup-browser ## the dashboard in a real Chromium, against servers with simulated hosts
	@CI=true $(GO) test -tags $(EVENKEEL_TAGS) -count 1 ./test/browser

.PHONY: setup-machines
setup-machines:
	@scripts/setup.sh machines

.PHONY: machine-image
machine-image: setup-machines ## the Debian that test-machines boots, and the QEMU that boots it: made once, some minutes
	@scripts/fetch-qemu.sh
	@test/machines/image.sh $(MACHINE)

.PHONY: test-alerts
test-alerts: ## checks and tests of the Prometheus rules, where promtool is installed
	@packaging/prometheus/test.sh

.PHONY: lint
lint: setup-lint ## formatting, vet, staticcheck, gocyclo, shellcheck, the house rules
	@scripts/lint.sh

.PHONY: docs
docs: ## writes the pages and tables below docs/reference that are made from the programs
	EVENKEEL_DOCS=write $(GO) test -count 1 -tags $(EVENKEEL_TAGS) -run 'ReferencePage|MetricsPage|SettingsPage|OperationsOnPage' ./cmd/vcctl ./cmd/vcd ./api/server

.PHONY: vuln
vuln: ## known vulnerabilities in what we link and call (govulncheck); NOT RUN where its database cannot be reached
	@scripts/vuln.sh

.PHONY: fmt
fmt: ## format the Go code
	@find . -name '*.go' -not -path './build/*' -exec gofmt -w {} +

.PHONY: clean
clean: ## remove what was built (the test guest and its packages too)
	rm -rf bin build
