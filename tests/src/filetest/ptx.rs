//! `ptx` tests: what must stand in the PTX of a graph's kernels.
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

use fornax_codegen::{Target, emit_ptx, lower};

use super::Case;
use super::kinds::fused_plan;

pub(super) fn ptx(case: &Case) -> Result<String, String> {
    let target = case.all_settings("target").next().unwrap_or("sm_90a");
    let target: Target = target.parse().map_err(|error| format!("{error}"))?;
    let plan = fused_plan(case)?;
    let mut text = String::new();
    for region in &plan.regions {
        let lowered = lower(region, &plan.dims).map_err(|error| error.to_string())?;
        for kernel in &lowered.kernels {
            let module = emit_ptx(kernel, target).map_err(|error| error.to_string())?;
            text.push_str(&module.text);
        }
    }
    check(&text, &case.expectation).map_err(|error| format!("{error}\n\n{text}"))?;
    Ok(case.unchanged())
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
