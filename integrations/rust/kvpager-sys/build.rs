//! Compiles the library with the system's C compiler. A package has it in `c/`, with its declarations
//! in Rust; in the repository scripts/amalgamation.py and bindgen write them.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

fn main() {
    let here = folder("CARGO_MANIFEST_DIR");
    let out = folder("OUT_DIR");
    let packaged = here.join("c");
    let source = if packaged.exists() {
        changes_with(&packaged);
        packaged
    } else {
        generate(&here.join("../../.."), &out)
    };
    let declarations = source.join("bindings.rs");
    if let Err(reason) = std::fs::copy(&declarations, out.join("bindings.rs")) {
        fail(&format!("{}: {reason}", declarations.display()));
    }
    compile(&source, &out);
    println!("cargo:include={}", source.display());
}

/// The library as one file and its declarations, from the sources of the repository.
fn generate(repository: &Path, out: &Path) -> PathBuf {
    let declare = "integrations/rust/bindings.sh";
    for part in ["src", "include", "scripts/amalgamation.py", declare] {
        changes_with(&repository.join(part));
    }
    let source = out.join("c");
    let script = repository.join("scripts/amalgamation.py");
    run(Command::new("python3").arg(script).arg(&source));
    run(Command::new("sh")
        .arg(repository.join(declare))
        .arg(source.join("kvpager.h"))
        .arg(source.join("bindings.rs")));
    source
}

fn compile(source: &Path, out: &Path) {
    let object = out.join("kvpager.o");
    let archive = out.join("libkvpager.a");
    let check = setting("KVP_CHECK").unwrap_or_else(|| "0".to_string());
    let flags = setting("CFLAGS").unwrap_or_default();
    run(tool("CC", "cc")
        .args(["-std=c11", "-O3", "-fPIC"])
        .arg(format!("-DKVP_CHECK={check}"))
        .args(flags.split_whitespace())
        .arg("-c")
        .arg(source.join("kvpager.c"))
        .arg("-o")
        .arg(&object));
    let _ = std::fs::remove_file(&archive);
    run(tool("AR", "ar").arg("crs").arg(&archive).arg(&object));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=kvpager");
    println!("cargo:rustc-link-lib=pthread");
}

/// The program that the variable names, with its arguments; else the usual one.
fn tool(variable: &str, usual: &str) -> Command {
    let line = setting(variable).unwrap_or_else(|| {
        if env::var_os("HOST") != env::var_os("TARGET") {
            fail(&format!("to cross-compile, set {variable} to the target's {usual}"));
        }
        usual.to_string()
    });
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(usual));
    command.args(words);
    command
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{command:?}: {status}")),
        Err(reason) => fail(&format!("{command:?}: {reason}")),
    }
}

fn fail(message: &str) -> ! {
    eprintln!("kvpager-sys: {message}");
    exit(1)
}

fn setting(variable: &str) -> Option<String> {
    println!("cargo:rerun-if-env-changed={variable}");
    env::var(variable).ok()
}

fn folder(variable: impl AsRef<OsStr>) -> PathBuf {
    PathBuf::from(env::var_os(variable).expect("cargo sets it"))
}

fn changes_with(path: &Path) {
    println!("cargo:rerun-if-changed={}", path.display());
}
