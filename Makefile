# The front door. `make help` lists what it opens; CMakePresets.json says how things are built.

PREFIX       ?= /usr/local
FUZZ_SECONDS ?= 60
BENCH_ARGS   ?=
RUN_ARGS     ?= data/mixed-small.jsonl
JOBS         ?= 2

SETUP := scripts/setup.sh
CTEST := ctest --parallel $(JOBS)
BUILD := cmake --build --parallel $(JOBS) --preset

.DEFAULT_GOAL := release
.PHONY: release check run test bench install asan tsan fuzz soak format lint clean help setup setup-fuzz

help:
	@echo 'make            build the library and the command (build/release)'
	@echo 'make run        replay the bundled workload and print the report'
	@echo 'make test       build and run every test'
	@echo 'make bench      measure; also writes build/bench.json'
	@echo 'make install    install to PREFIX ($(PREFIX)), below DESTDIR if it is set'
	@echo 'make asan       the tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make tsan       the tests under ThreadSanitizer'
	@echo 'make fuzz       every fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS)) under libFuzzer'
	@echo 'make soak       the long random runs'
	@echo 'make lint       house rules: who may include whom, sizes, names'
	@echo 'make format     run clang-format over the C files'
	@echo 'make clean      remove build/'

# Every target that builds begins here: what the machine lacks is installed, or named.
setup:
	@$(SETUP)

# A build directory is configured once, and again when the presets change; after that the build
# itself notices changes of CMakeLists.txt and new source files.
build/%/build.ninja: CMakePresets.json | setup
	@cmake --preset $*
	@touch $@

release check: %: build/%/build.ninja setup
	@$(BUILD) $@

run: build/release/build.ninja setup
	@$(BUILD) release --target kvpager_tool
	@build/release/kvpager replay $(RUN_ARGS)

# The check build runs every test with the whole cache audited after each call; the release build
# then runs what ships: the command, the examples, the installed tree, and the longer random runs.
test: check release
	@$(CTEST) --preset check
	@$(CTEST) --preset release

bench: release
	@build/release/bench/kvp_bench --json build/bench.json $(BENCH_ARGS)

install: release
	@DESTDIR='$(DESTDIR)' cmake --install build/release --prefix '$(PREFIX)'

asan: build/asan/build.ninja setup
	@$(BUILD) asan
	@$(CTEST) --preset asan

# ThreadSanitizer cannot place its shadow where the system randomises addresses widely.
tsan: build/tsan/build.ninja setup
	@$(BUILD) tsan
	@if setarch -R true 2>/dev/null; then setarch -R $(CTEST) --preset tsan; \
	 else $(CTEST) --preset tsan; fi

fuzz: build/fuzz/build.ninja
	@$(BUILD) fuzz
	@scripts/fuzz.sh build/fuzz $(FUZZ_SECONDS)

build/fuzz/build.ninja: | setup-fuzz
setup-fuzz: setup
	@$(SETUP) fuzz

soak: check release
	@ctest --test-dir build/check --build-config soak -L soak --output-on-failure
	@ctest --test-dir build/release --build-config soak -L soak --output-on-failure

lint: setup
	@python3 scripts/lint.py

format:
	@if command -v clang-format >/dev/null; then \
	     find include src test bench fuzz examples -name '*.[ch]' 2>/dev/null \
	         | xargs --no-run-if-empty clang-format -i; \
	 else echo 'clang-format is missing (Debian: apt-get install clang-format)' >&2; exit 1; fi

clean:
	@rm -rf build
