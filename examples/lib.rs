//! Small programs that embed one crate each stand beside this file. The library itself holds nothing but the
//! README, so that the Rust in it is compiled and run.

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
pub struct Readme;
