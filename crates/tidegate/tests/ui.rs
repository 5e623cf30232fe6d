//! A wrong stack does not compile, and the compiler says which layer is missing.
#![cfg(all(feature = "full", not(loom)))]

#[test]
fn a_wrong_stack_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
