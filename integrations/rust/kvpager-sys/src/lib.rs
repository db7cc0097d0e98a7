//! The C library kvpager: its cache, kernels' metadata, scheduler and operation logs.
//!
//! bindgen makes the declarations from the one-file build's header, comments included: the manual of
//! each call is the comment of its C function. A package has them in `c/`.
//!
//! `build.rs` compiles the library. It reads `CC` (default `cc`), `AR` (`ar`), `CFLAGS`, and
//! `KVP_CHECK` (0): 3 audits the whole cache after each call.
//!
//! The crate `kvpager` has safe calls over these.
#![allow(non_camel_case_types)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
