# Every target is one line; what it does is in xtask/.
.DEFAULT_GOAL := help
.PHONY: help build test test-boot demo lint fmt generate components image image-check release book verify bench bench-hot tools clean ci

help: ## Lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  make %-11s %s\n", $$1, $$2 }'

build: ## Builds the provider
	cargo build --release --bin capmox

test: ## Everything that CI runs
	cargo xtask test

test-boot: ## The seed on real Debian guests in QEMU; WORD=VRF boots some
	cargo xtask test-boot $(WORD)

demo: ## From nothing to a finished cluster and back; KEEP=1 stays up
	cargo xtask demo

lint: ## Format, lints, documentation
	cargo xtask lint

fmt: ## Formats the sources
	cargo fmt --all

generate: ## Writes generated files
	cargo xtask generate

components: ## Writes components/: manifests, package, chart; IMAGE=name:tag sets the image
	cargo xtask components $(if $(IMAGE),--image $(IMAGE))

image: ## Builds dist/image, an OCI layout, without Docker; ARCH=amd64,arm64
	cargo xtask image

image-check: ## Builds image and release twice, as two machines would, and compares
	cargo xtask image-check

release: ## Lays out dist/: what clusterctl expects, chart, SBOM, sums; IMAGE=name:tag
	cargo xtask release $(if $(IMAGE),--image $(IMAGE))

book: ## Writes the documentation as HTML to dist/book
	cargo xtask book

verify: ## Checks that generated files are up to date
	cargo xtask verify

bench: ## What many machines cost; N=1,25,100 says how many, FLAGS="…" are for the manager
	cargo run --quiet --profile bench --package xtask -- bench $(if $(N),-N $(N)) $(if $(FLAGS),--flags="$(FLAGS)")

bench-hot: ## Instructions of what is computed most often, by Valgrind
	cargo xtask bench-hot

tools: ## Builds the control plane's programs into .cache
	cargo xtask tools

clean: ## Removes everything that was built
	cargo clean && rm -rf .cache

ci: ## What .ci/run does
	.ci/run
