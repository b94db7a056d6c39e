//! Diagnostics as comments on the lines they are about.

/// Splits a line into what it says and the annotation at its end, if any.
fn without_annotation(line: &str) -> &str {
    line.split_once("; error[").map_or(line, |(code, _)| code)
}

/// The input with `; error[code]: message` on the lines (from 1) of diagnostics and no other such
/// comment; the second one and so on of a line stand below it.
pub(super) fn annotate(input: &str, diagnostics: &[(usize, String)]) -> String {
    let mut text = String::new();
    for (number, line) in input.lines().enumerate() {
        let code = without_annotation(line);
        if code.trim().is_empty() && code != line {
            continue;
        }
        text.push_str(code.trim_end());
        let here = diagnostics.iter().filter(|(line, _)| *line == number + 1);
        for (position, (_, message)) in here.enumerate() {
            let indent = if position == 0 { " " } else { "\n    " };
            text.push_str(&format!("{indent}; {message}"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::annotate;

    #[test]
    fn annotations_are_replaced() {
        let old = "a ; error[x]: 1\n    ; error[y]: 2\nb ; kept\n\nc\n";
        let expected = "a\nb ; kept ; error[z]: 3\n    ; error[z]: 4\n\nc ; error[w]: 5\n";
        let diagnostics = [(3, "error[z]: 3"), (3, "error[z]: 4"), (5, "error[w]: 5")];
        let diagnostics = diagnostics.map(|(line, message)| (line, message.to_owned()));
        assert_eq!(annotate(old, &diagnostics), expected);
        let lines: Vec<(usize, String)> =
            [(2, "error[z]: 3"), (2, "error[z]: 4"), (4, "error[w]: 5")]
                .map(|(line, message)| (line, message.to_owned()))
                .to_vec();
        assert_eq!(annotate("a\nb ; kept\n\nc\n", &lines), expected);
    }
}
