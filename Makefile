# The front door. `make help` lists what it opens; CMakePresets.json says how things are built.

PREFIX       ?= /usr/local
FUZZ_SECONDS ?= 60
BENCH_ARGS   ?=
RUN_ARGS     ?= data/mixed-small.jsonl
SERVE_ARGS   ?=
PARTS        ?= 1

ifndef JOBS
JOBS := $(shell scripts/jobs.sh)
endif

SETUP := scripts/setup.sh
CTEST := ctest --parallel $(JOBS)
BUILD := cmake --build --parallel $(JOBS) --preset

.DEFAULT_GOAL := release
.PHONY: release check lib run test adapters engines engines-bench calibrate llama serve serve-demo serve-bench \
        ggml ggml-bench bench install instructions ports wheels rust dist packages amalgamation reference pages asan \
        tsan mutants machine fuzz coverage analyze long soak format lint house clean help setup setup-fuzz \
        setup-coverage setup-analyze setup-instructions setup-ports setup-wheels setup-rust setup-packages \
        setup-serve

help:
	@echo 'make            build everything: library, command, examples, tests (build/release)'
	@echo 'make lib        build the libraries only'
	@echo 'make run        replay the bundled workload and print the report'
	@echo 'make test       build and run the tests: 6 minutes on two cores, 0.8 GB'
	@echo 'make adapters   the Python adapters on the engines they are for (downloads 1 GB)'
	@echo 'make engines    KV stores below vLLM and SGLang themselves (downloads 0.9 GB);'
	@echo '                make engines-bench: times to the first token, with more rounds'
	@echo 'make calibrate  hits of kvpager replay beside those of a real vLLM and kvpager-serve: PASS, twice'
	@echo '                or FAIL (downloads 0.9 GB; eight minutes)'
	@echo 'make ggml       attention for llama.cpp, tested in it (downloads 164 MB); make ggml-bench'
	@echo 'make llama      libkvpager_llama with llama.cpp and a real model (downloads 173 MB)'
	@echo 'make serve      a real model behind an HTTP server and a page (downloads 164 MB); SERVE_ARGS'
	@echo 'make serve-demo the same for 32 users: prints answers and what the cache saved, and ends'
	@echo 'make serve-bench it beside llama-server: minutes for each scene; BENCH_ARGS'
	@echo 'make bench      measure; also writes build/bench.json'
	@echo 'make install    install to PREFIX ($(PREFIX)), below DESTDIR if it is set'
	@echo 'make instructions  count those of eleven operations; fails at 3 % over bench/instructions.txt'
	@echo 'make ports      builds that make test has not: clang, gcc 11, aarch64, Makefiles, old CMake'
	@echo 'make rust       the Rust crates: tested and packaged in build/rust'
	@echo 'make wheels     manylinux wheels for x86-64 and aarch64, and the sdist, each installed and tested;'
	@echo '                build/wheels (downloads 200 MB); WHEELS: names of some'
	@echo 'make dist       the source archive of HEAD: build/kvpager-VERSION.tar.gz'
	@echo 'make packages   Debian packages and a Conan package of that archive, tested (downloads Conan)'
	@echo 'make amalgamation  the core as one file: build/amalgamation/kvpager.c and kvpager.h'
	@echo 'make reference  the public headers as pages: build/reference/index.html'
	@echo 'make pages      the commands that the pages for users show, from a clean clone of HEAD'
	@echo 'make asan       the tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make tsan       the tests that start threads under ThreadSanitizer'
	@echo 'make machine    plant defects that a machine draws, all in one build; MACHINE_ARGS="--seed 2"'
	@echo 'make mutants    plant defects one by one; the tests must catch each (PARTS=8: an eighth of'
	@echo '                them, the next one with each commit)'
	@echo 'make fuzz       FUZZ_TARGETS (all) under libFuzzer, FUZZ_SECONDS ($(FUZZ_SECONDS)) each'
	@echo 'make coverage   which lines and branches the tests run; fails at one of src/core not listed'
	@echo 'make analyze    gcc -fanalyzer, clang-tidy and cppcheck; fails at any finding'
	@echo 'make long       every state of the models of the protocol of steps; the release build: examples,'
	@echo '                the installed tree, long random runs, builds as a user would do them'
	@echo 'make soak       the long random runs'
	@echo 'make lint       house rules: who may include whom, sizes, names; prose of the pages'
	@echo 'make house      how big the project is: figures with their limits and aims'
	@echo 'make format     run clang-format over the C files'
	@echo 'make clean      remove build/'
	@echo
	@echo 'JOBS            how much runs at once: here $(JOBS), by processors and memory (scripts/jobs.sh)'

# Every target that builds begins here: what the machine lacks is installed, or named.
setup:
	@$(SETUP)
	@scripts/libvalkey.sh

# A build directory is configured once, and again when the presets change; after that the build
# itself notices changes of CMakeLists.txt and new source files.
build/%/build.ninja: CMakePresets.json | setup
	@cmake --preset $*
	@touch $@

release check: %: build/%/build.ninja setup
	@$(BUILD) $@

lib: build/release/build.ninja setup
	@$(BUILD) release --target lib

# Only the command is built, and what the build says is shown only if it fails.
run: setup
	@scripts/quietly.sh 'configuring build/release' $(MAKE) --no-print-directory build/release/build.ninja
	@scripts/quietly.sh 'building the command: a minute or two, the first time' \
	    $(BUILD) release --target kvpager_tool
	@build/release/kvpager replay $(RUN_ARGS)

# With the whole cache audited after each call. What only a build without checks shows, and what
# takes longer, is `make long`.
test: check
	@$(CTEST) --preset check

# Where the engines cannot be had it says why, and that is no failure.
adapters: setup
	@python/run_adapters.sh build/adapters || [ $$? -eq 77 ]

engines: setup
	@python/run_engines.sh build/engines || [ $$? -eq 77 ]

engines-bench: setup
	@python/run_engines.sh build/engines --bench $(BENCH_ARGS) || [ $$? -eq 77 ]

calibrate: build/release/build.ninja setup setup-serve
	@$(BUILD) release --target kvpager_tool
	@python/run_engines.sh build/engines --calibrate --kvpager "$(CURDIR)/build/release/kvpager" || [ $$? -eq 77 ]
	@scripts/llama.sh build/llama calibrate || [ $$? -eq 77 ]

# libggml-kvpager.so for one release of llama.cpp, with a real model. Where that cannot be
# downloaded it prints the reason, and that is no failure.
ggml: setup
	@scripts/ggml.sh build/llama || [ $$? -eq 77 ]

ggml-bench: setup
	@scripts/ggml.sh build/llama bench || [ $$? -eq 77 ]

llama: setup-serve
	@scripts/llama.sh build/llama || [ $$? -eq 77 ]

# kvpager-serve with SmolLM2-135M: prints where it is, until it is ended. SERVE_ARGS: its options.
serve: setup-serve
	@scripts/llama.sh build/llama serve $(SERVE_ARGS) || [ $$? -eq 77 ]

serve-bench: setup-serve
	@scripts/llama.sh build/llama bench $(BENCH_ARGS) || [ $$? -eq 77 ]

serve-demo: setup-serve
	@scripts/llama.sh build/llama demo $(SERVE_ARGS) || [ $$? -eq 77 ]

bench: build/release/build.ninja setup
	@$(BUILD) release --target kvp_bench
	@build/release/bench/kvp_bench --json build/bench.json $(BENCH_ARGS)

# What is installed is built, and nothing else; without debugging information, which
# `cmake --install build/release` keeps.
install: build/release/build.ninja setup
	@$(BUILD) release --target lib kvpager_tool
	@DESTDIR='$(DESTDIR)' cmake --install build/release --prefix '$(PREFIX)' --strip

# Configured anew: valgrind's header may have come just now.
instructions: setup-instructions build/release/build.ninja
	@scripts/quietly.sh 'configuring build/release' cmake build/release
	@$(BUILD) release --target kvp_bench
	@scripts/instructions.py build/release || [ $$? -eq 77 ]

# PORTS: names of some; PORTS_ARGS=--write records the run in docs/TESTING.md.
ports: setup-ports
	@scripts/ports.py $(PORTS_ARGS) $(PORTS)

rust: setup-rust
	@scripts/rust.sh build/rust

# WHEELS: x86_64, aarch64, sdist, or some. For another Python: python3.12 scripts/wheels.py
wheels: setup-wheels
	@scripts/wheels.py $(WHEELS)

dist:
	@scripts/dist.sh build

# PACKAGES: debian or conan. Where one cannot be made it prints the reason, and that is no failure.
packages: setup-packages
	@JOBS=$(JOBS) scripts/packages.sh $(PACKAGES)

# kvpager.c and kvpager.h; test/install/amalgamation.sh compiles them.
amalgamation: setup
	@python3 scripts/amalgamation.py build/amalgamation

reference: setup
	@python3 scripts/reference.py

# scripts/pages.txt: what is shortened, and what is left out.
pages: setup-rust
	@scripts/pages.py

asan: build/asan/build.ninja setup
	@$(BUILD) asan
	@$(CTEST) --preset asan

# ThreadSanitizer cannot place its shadow where the system randomises addresses widely.
tsan: build/tsan/build.ninja setup
	@$(BUILD) tsan --target tests_with_threads
	@if setarch -R true 2>/dev/null; then setarch -R $(CTEST) --preset tsan; \
	 else $(CTEST) --preset tsan; fi

machine: setup setup-serve setup-analyze
	@test/mutants/machine.sh build/machine --jobs $(JOBS) $(MACHINE_ARGS) || [ $$? -eq 77 ]

mutants: setup setup-serve
	@test/mutants/run.py --jobs $(JOBS) --parts $(PARTS)

fuzz: build/fuzz/build.ninja
	@$(BUILD) fuzz
	@python3 scripts/fuzz.py run build/fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

build/fuzz/build.ninja: | setup-fuzz
setup-fuzz: setup
	@$(SETUP) fuzz

# What an earlier run counted does not count.
coverage: setup-coverage build/coverage/build.ninja
	@$(BUILD) coverage
	@find build/coverage -name '*.gcda' -delete
	@$(CTEST) --preset coverage
	@scripts/coverage.py build/coverage

# Nothing is built there: the analysers read how each file would be compiled.
analyze: setup-analyze build/analyze/build.ninja
	@$(BUILD) analyze --target build.ninja
	@scripts/analyze.sh build/analyze $(JOBS) $(PARTS)

setup-coverage setup-analyze setup-instructions setup-ports setup-wheels setup-rust setup-packages \
setup-serve: setup-%:
	@$(SETUP) $*

long: check release
	@$(CTEST) --test-dir build/check --output-on-failure -L '^spin$$'
	@$(CTEST) --preset release

soak: check release
	@ctest --test-dir build/check --build-config soak -L 'soak|^long$$' --output-on-failure
	@ctest --test-dir build/release --build-config soak -L soak --output-on-failure
	@JUDGE_SEEDS=42 python/run_adapters.sh build/adapters -k test_vllm_groups || [ $$? -eq 77 ]

lint: setup
	@python3 scripts/lint.py
	@python3 scripts/prose.py
	@python3 scripts/combinations.py

house: setup
	@python3 scripts/house.py

format:
	@if command -v clang-format >/dev/null; then \
	     find include src test bench fuzz examples integrations -name '*.[ch]' -o -name '*.cpp' 2>/dev/null \
	         | xargs --no-run-if-empty clang-format -i; \
	 else echo 'clang-format is missing (Debian: apt-get install clang-format)' >&2; exit 1; fi

clean:
	@rm -rf build
