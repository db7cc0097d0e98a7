//! The C library kvpager: its cache, kernels' metadata, scheduler and operation logs.
//!
//! `bindings.rs` is made by bindgen from the one-file build's header, comments included: the manual
//! of each call is the comment of its C function. Calls that fill a struct which may grow take its
//! size as a last argument and end in `_sized`; `docs/ABI.md` of the repository has the reason.
//!
//! `build.rs` compiles the library. It reads `CC` (default `cc`), `AR` (`ar`), `CFLAGS`, and
//! `KVP_CHECK` (0): 3 audits the whole cache after each call.
//!
//! The crate `kvpager` has safe calls over these.
#![allow(non_camel_case_types)]

include!("bindings.rs");
