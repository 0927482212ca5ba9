//! Makes the library's own symbols its own: a backend loads many libraries.
fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-Bsymbolic");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
