//! What must not compile: each program misuses one guarantee, and the compiler's answer is on file
//! beside it.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
