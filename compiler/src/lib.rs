//! The Fornax compiler driver.
