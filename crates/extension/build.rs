//! Binds the library's calls to its own symbols: a backend loads many libraries, which may export the same names.
fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-Bsymbolic");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
