//! What tests of the `fornax` program share: calls of it, and where models lie.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A call of the program in the repository.
pub fn fornax(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_fornax");
    Command::new(program).args(arguments).current_dir(root()).output().unwrap()
}

/// The text of a call that must succeed.
#[track_caller]
pub fn succeeds(arguments: &[&str]) -> String {
    let output = fornax(arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "fornax {}\n{text}{errors}", arguments.join(" "));
    text
}

/// The error text of a call that must end with exit code 2.
#[track_caller]
pub fn refused(arguments: &[&str]) -> String {
    let output = fornax(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "fornax {}\n{errors}", arguments.join(" "));
    assert_eq!(errors.matches("error").count().min(1), 1, "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    errors
}
