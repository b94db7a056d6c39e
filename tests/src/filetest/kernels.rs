//! `kernel` tests, and `ptx` tests: what must stand in the PTX of a graph's kernels.
//!
//! ```text
//! ; test: ptx
//! ; target: sm_90a
//! ...
//! ; check: ld.global.v4
//! ; not: .local
//! ```
//!
//! LLVM's text moves from version to version, so that only single lines are compared: each `check` is
//! found behind the one before it, a `not` nowhere.

use fornax_codegen::kernel::{self, Kernel};
use fornax_codegen::{CodegenError, Target, emit_ptx, lower};

use super::Case;
use super::kinds::plan;

/// The kernels of all regions, one after the other.
pub(super) fn kernel(case: &Case) -> Result<String, String> {
    let texts: Vec<String> = kernels(case)?.iter().map(ToString::to_string).collect();
    Ok(case.with_output(&texts.join("\n")))
}

pub(super) fn ptx(case: &Case) -> Result<String, String> {
    let target = case.all_settings("target").next().unwrap_or("sm_90a");
    let target: Target = target.parse().map_err(|error: CodegenError| error.to_string())?;
    let mut text = String::new();
    for kernel in kernels(case)? {
        let module = emit_ptx(&kernel, target).map_err(|error| error.to_string())?;
        text.push_str(&module.text);
    }
    check(&text, &case.expectation).map_err(|error| format!("{error}\n\n{text}"))?;
    Ok(case.unchanged())
}

/// What the regions are lowered to, verified.
fn kernels(case: &Case) -> Result<Vec<Kernel>, String> {
    let plan = plan(case)?;
    let mut kernels = Vec::new();
    for region in &plan.regions {
        let lowered = lower(region, &plan.dims).map_err(|error| error.to_string())?;
        for kernel in lowered.kernels {
            match kernel::verify(&kernel).as_slice() {
                [] => kernels.push(kernel),
                faults => return Err(format!("{}: {}", kernel.name, faults.join("\n"))),
            }
        }
    }
    Ok(kernels)
}

/// Reads a kernel's text.
pub(super) fn read(text: &str) -> Result<Kernel, String> {
    kernel::parse(text).map_err(|error| error.to_string())
}

/// Faults of a kernel's text with their lines; those of the whole kernel are on its first line.
pub(super) fn faults(text: &str) -> Vec<(usize, String)> {
    let located = |line, message: &str| (line, format!("error[kernel]: {message}"));
    match kernel::parse(text) {
        Err(error) => vec![located(error.line, &error.message)],
        Ok(kernel) => kernel::verify(&kernel).iter().map(|fault| located(1, fault)).collect(),
    }
}

/// Holds `check:` and `not:` lines against a text.
fn check(text: &str, expectation: &str) -> Result<(), String> {
    let mut rest = text;
    let mut checks = 0;
    for line in expectation.lines().filter(|line| !line.is_empty()) {
        checks += 1;
        if let Some(wanted) = line.strip_prefix("check: ") {
            let at = rest.find(wanted).ok_or_else(|| format!("`{wanted}` is not there"))?;
            rest = &rest[at + wanted.len()..];
        } else if let Some(unwanted) = line.strip_prefix("not: ") {
            if text.contains(unwanted) {
                return Err(format!("`{unwanted}` is there"));
            }
        } else {
            return Err(format!("`{line}` is neither `check: ...` nor `not: ...`"));
        }
    }
    if checks == 0 { Err("there is nothing to check".into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn checks_are_in_order_and_nots_nowhere() {
        assert_eq!(check("a b c", "check: a\ncheck: c\nnot: d\n"), Ok(()));
        for wrong in ["check: c\ncheck: a", "not: b", "check: d", "a", ""] {
            assert!(check("a b c", wrong).is_err(), "{wrong}");
        }
    }
}
