# Everything a developer or the CI runs. `make` alone lists the targets.

GO        ?= go
PARALLEL  ?= 2
TIMEOUT   ?= 14m
LIMIT     ?= 24m
FUZZTIME  ?= 30s
BENCH     ?= .
PKG       ?= ./...
ARGS      ?=
COUNTS    ?=

# Runs `go test`, shows failures in full, ends with the counts of tests.
REPORT = $(GO) run -buildvcs=false ./scripts/testreport -limit $(LIMIT) -counts '$(COUNTS)' --

.DEFAULT_GOAL := help
.PHONY: help deps demo build test race verify fuzz bench bench-decode bench-actors cover

help: ## list the targets and their variables
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PKG=./actor/... limits test, race, bench and cover; ARGS='--help' goes to demo;"
	@echo "  FUZZTIME=$(FUZZTIME) per fuzz target; BENCH=$(BENCH) selects benchmarks; PARALLEL=$(PARALLEL) packages at once."

deps: ## install the database servers that tests and demo start, when missing
	@bash scripts/install-deps.sh

demo: deps ## run the demo: two private servers, a sync between them, the console
	$(GO) run ./cmd/runnel demo $(ARGS)

build: ## build bin/runnel
	$(GO) build -trimpath -o bin/runnel ./cmd/runnel

test: deps ## vet and run all tests
	$(GO) vet $(PKG)
	$(REPORT) -p $(PARALLEL) -timeout $(TIMEOUT) $(PKG)

race: LIMIT = 55m
race: deps ## run all tests under the race detector
	$(REPORT) -race -p $(PARALLEL) -timeout 40m $(PKG)

verify: ## check formatting, vet, house rules, checksums; build the bench module
	@bad=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
		if [ -n "$$bad" ]; then echo "not formatted, run gofmt -w:"; echo "$$bad"; exit 1; fi
	@for f in $$(git ls-files --cached --others --exclude-standard '*.sh') .ci/run; do bash -n "$$f" || exit 1; done
	$(GO) mod verify
	$(GO) vet ./...
	$(GO) test ./internal/lint/...
	@if [ -f bench/go.mod ]; then echo "cd bench && $(GO) vet ./..."; cd bench && $(GO) vet ./...; fi

fuzz: ## run every fuzz target for FUZZTIME
	@bash scripts/fuzz.sh $(FUZZTIME)

bench: deps ## run the benchmarks, without tests
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m -p 1 $(PKG)

bench-decode: ## measure decoding of a binary log alone, against go-mysql
	cd bench && $(GO) run ./decode $(ARGS)

bench-actors: ## measure actors against other runtimes; ARGS='--scale 0.1 --rounds 3 --json FILE'
	cd bench/actors && $(GO) run . $(ARGS)

cover: deps ## run all tests and write coverage to cover.out and cover.html
	$(REPORT) -p $(PARALLEL) -timeout $(TIMEOUT) -coverpkg ./... -coverprofile cover.out $(PKG)
	$(GO) tool cover -html cover.out -o cover.html
	@$(GO) tool cover -func cover.out | tail -n 1
