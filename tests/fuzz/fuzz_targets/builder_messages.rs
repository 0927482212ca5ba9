#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lantern_index_fuzz::builder_messages(data));
