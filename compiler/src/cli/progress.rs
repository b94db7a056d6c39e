//! Progress for people, on the terminal's error stream; silent elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// A line that says what is being done.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A line for work of unknown length; hidden when standard error is no terminal.
    pub(crate) fn start(message: &str) -> Progress {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
        bar.set_style(style.expect("invariant: the template is valid"));
        bar.enable_steady_tick(std::time::Duration::from_millis(100));
        bar.set_message(message.to_owned());
        Progress(bar)
    }

    /// Says what is done now.
    pub(crate) fn say(&self, message: impl Into<String>) {
        self.0.set_message(message.into());
    }

    /// Prints what `print` does without the line in between.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
