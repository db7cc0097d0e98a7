#!/bin/sh
# Writes the declarations of kvpager-sys from the header of the one-file build.
#
#     bindings.sh HEADER OUT
#
# build.rs runs it in the repository, scripts/rust.sh for a package. Structs that hold functions have
# no ==. Debian: bindgen, libclang1, rustfmt. stddef.h is in the C
# compiler's folder of headers.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bindgen "$1" --output "$2" \
    --allowlist-function 'kvp_.*' --allowlist-type 'kvp_.*' --allowlist-var 'KVP_.*' \
    --default-enum-style consts --no-prepend-enum-name --size_t-is-usize --rust-target 1.47 \
    --with-derive-default --with-derive-hash --with-derive-partialeq --with-derive-eq \
    --no-partialeq 'kvp_sink|kvp_source|kvp_arena_source|kvp_(arena|snapshot)_options' \
    --no-layout-tests --disable-header-comment --rustfmt-configuration-file "$here/rustfmt.toml" \
    --raw-line '// Made by integrations/rust/bindings.sh from the headers.' \
    -- -fparse-all-comments "-I$(${CC:-cc} -print-file-name=include)"
