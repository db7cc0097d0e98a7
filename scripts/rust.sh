#!/usr/bin/env bash
# Builds, tests and packages the Rust crates (make rust), without a network.
#
#     rust.sh BUILD     the packages are BUILD/kvpager-sys-VERSION.crate and BUILD/kvpager-VERSION.crate
#
# The tests run with the library audited under AddressSanitizer and UndefinedBehaviorSanitizer, and as
# it ships. A program that has the crates from their packages prints what the examples of C print.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(mkdir -p "${1:?the build folder}" && cd "$1" && pwd)
rust=$source/integrations/rust
export CARGO_TARGET_DIR=$build/target CARGO_NET_OFFLINE=true
unset KVP_CHECK CFLAGS RUSTFLAGS

fail() {
    echo "rust: $*" >&2
    exit 1
}

# The runtime must be the first library of the program, and the linker puts it behind others.
sanitized() {
    local host runner
    host=$(rustc -vV | sed -n 's/^host: //p')
    runner=CARGO_TARGET_$(echo "$host" | tr 'a-z-' 'A-Z_')_RUNNER
    env "$runner=env LD_PRELOAD=$("${CC:-cc}" -print-file-name=libasan.so)" KVP_CHECK=3 \
        CFLAGS="-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all" \
        RUSTFLAGS="-Clink-arg=-lasan -Clink-arg=-lubsan" \
        cargo test --quiet --target "$host" --tests
}

package() { # name
    (cd "$build/stage/$1" && cargo package --quiet --no-verify --allow-dirty "${vendored[@]}")
    mkdir -p "$build/vendor"
    mv "$build/target/package/$1-$version.crate" "$build"
    tar xzf "$build/$1-$version.crate" -C "$build/vendor"
    echo '{"files": {}}' >"$build/vendor/$1-$version/.cargo-checksum.json"
}

packages() {
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$rust/kvpager/Cargo.toml")
    vendored=(--config 'source.crates-io.replace-with = "vendored"'
        --config "source.vendored.directory = \"$build/vendor\"")
    rm -rf "$build/stage" "$build/vendor"
    mkdir -p "$build/stage" "$build/vendor"
    cp -r "$rust/kvpager-sys" "$rust/kvpager" "$build/stage"
    cp "$source/LICENSE" "$build/stage/kvpager"
    python3 "$source/scripts/amalgamation.py" "$build/stage/kvpager-sys/c"
    "$rust/bindings.sh" "$build/stage/kvpager-sys/c/kvpager.h" "$build/stage/kvpager-sys/c/bindings.rs"
    package kvpager-sys
    package kvpager
}

# As a user has them: nothing of the repository is there.
engine() {
    local engine=$build/stage/engine
    mkdir -p "$engine/src/bin"
    cp "$rust/kvpager/examples/"*.rs "$engine/src/bin"
    printf '[package]\nname = "engine"\nversion = "1.0.0"\nedition = "2021"\n\n[dependencies]\nkvpager = "%s"\n' \
        "$version" >"$engine/Cargo.toml"
    for example in decode_loop scheduler; do
        (cd "$engine" && cargo run --quiet --release "${vendored[@]}" \
            --bin "$example") >"$build/$example.out"
        diff "$build/$example.out" "$source/examples/$example.expected" || fail "$example prints something else"
    done
}

rustc --version
bindgen --version
cd "$rust"
cargo fmt --check
sanitized
cargo test --quiet
packages
engine
