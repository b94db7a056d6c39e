//! LLVM's ways to complain, caught.
//!
//! LLVM reports what it cannot select in two ways. Diagnostics go to a handler of the context and become
//! an error of ours. Fatal errors end the process whatever a handler does, since LLVM's state is lost;
//! ours prints one message that names the kernel first and then exits with code 2. What is emitted is
//! chosen so that neither happens: only operations that the back end has instructions for, and the
//! module passes LLVM's verifier before code generation.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
use std::sync::Once;

use inkwell::context::Context;
use inkwell::llvm_sys::LLVMDiagnosticSeverity;
use inkwell::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use inkwell::llvm_sys::error_handling::LLVMInstallFatalErrorHandler;
use inkwell::llvm_sys::prelude::LLVMDiagnosticInfoRef;

thread_local! {
    /// What this thread compiles.
    static CURRENT: RefCell<String> = const { RefCell::new(String::new()) };
    /// The errors that LLVM reported on this thread since the last [`start`].
    static ERRORS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Says what this thread compiles now and forgets earlier errors. Sets the handlers.
pub(super) fn start(context: &Context, kernel: &str, target: &str) {
    static INSTALL: Once = Once::new();
    // SAFETY: `fatal` has the signature that LLVM asks for and lives as long as the program.
    INSTALL.call_once(|| unsafe { LLVMInstallFatalErrorHandler(Some(fatal)) });
    CURRENT.set(format!("kernel `{kernel}` for {target}"));
    ERRORS.take();
    // SAFETY: the context lives; `diagnostic` uses no context pointer.
    unsafe {
        LLVMContextSetDiagnosticHandler(context.raw(), Some(diagnostic), std::ptr::null_mut());
    }
}

/// The errors that LLVM reported since [`start`], in one line.
pub(super) fn errors() -> Option<String> {
    let errors = ERRORS.take();
    (!errors.is_empty()).then(|| errors.join("; "))
}

extern "C" fn diagnostic(info: LLVMDiagnosticInfoRef, _: *mut c_void) {
    // SAFETY: LLVM calls this with a live diagnostic; the description is a C string that is ours to free.
    let (severity, text) = unsafe {
        let description = LLVMGetDiagInfoDescription(info);
        let text = CStr::from_ptr(description).to_string_lossy().into_owned();
        LLVMDisposeMessage(description);
        (LLVMGetDiagInfoSeverity(info), text)
    };
    if severity == LLVMDiagnosticSeverity::LLVMDSError {
        ERRORS.with_borrow_mut(|errors| errors.push(text));
    }
}

extern "C" fn fatal(reason: *const c_char) {
    // SAFETY: LLVM passes a C string.
    let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy();
    let what = CURRENT.with_borrow(Clone::clone);
    // Nothing can be done about a closed standard error.
    let _ = writeln!(
        std::io::stderr(),
        "error: internal error: LLVM cannot compile {what}: {reason}; please report this"
    );
    std::process::exit(2);
}
