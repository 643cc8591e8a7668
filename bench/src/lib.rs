//! What benchmarks share: the programs that they measure, and the table that they print.

pub mod process;
pub mod table;
