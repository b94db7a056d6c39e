//! Runs every filetest below `filetests/`, one test per file. `BLESS=1` rewrites what differs.

use std::path::Path;

use fornax_tests::filetest;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let bless = std::env::var_os("BLESS").is_some_and(|value| value == "1");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let files = filetest::find(&root).expect("the folder of filetests can be read");
    let trials = files.into_iter().map(|path| {
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        Trial::test(name, move || filetest::check(&path, bless).map_err(Failed::from))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
