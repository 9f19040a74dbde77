//! The examples stand beside this file; the library itself is empty.
