//! Text of others, made safe to be shown on a terminal.
//!
//! Names in archives, host names, descriptions, what an engine printed: whoever wrote them must not move the cursor,
//! colour a line, rename the window, or turn letters around so that they read as something else. What programs read
//! (JSON, YAML) is not touched: there, such characters are escaped by the format.

/// Text on one line, without the spaces around it: what a terminal would obey, or show out of its order, is a space.
#[must_use]
pub fn one_line(text: &str) -> String {
    line(text.trim())
}

/// The same, with the spaces around it.
#[must_use]
pub fn line(text: &str) -> String {
    text.chars().map(plain).collect()
}

/// The same line by line: the ends of lines stay.
#[must_use]
pub fn lines(text: &str) -> String {
    text.chars()
        .map(|c| if c == '\n' { c } else { plain(c) })
        .collect()
}

/// Texts one below the other, each on its line whatever it holds.
#[must_use]
pub fn in_lines(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| line(text)).collect();
    texts.join("\n")
}

fn plain(c: char) -> char {
    if is_obeyed(c) { ' ' } else { c }
}

/// Control characters (both sets of ECMA-48, section 5), ends of lines that are no `\n`, and marks of direction
/// (Unicode Standard Annex 9, section 2) and of no width, which hide what a name really is.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_not_shown_and_letters_of_any_script_are() {
        assert_eq!(one_line("\u{1b}[2Ja\tb\u{9b}31m\n"), " [2Ja b 31m");
        assert_eq!(one_line("exe.\u{202e}fdp\u{2069}"), "exe. fdp ");
        assert_eq!(one_line("naïve 模型 ё"), "naïve 模型 ё");
        assert_eq!(lines("a\r\nb\u{7}\n"), "a \nb \n");
        let texts = ["  a\nerror: b".to_owned(), "c".to_owned()];
        assert_eq!(in_lines(&texts), "  a error: b\nc");
    }

    proptest! {
        #[test]
        fn nothing_that_is_obeyed_is_left_whatever_comes(text in any::<String>()) {
            prop_assert!(!one_line(&text).chars().any(is_obeyed));
            prop_assert!(!lines(&text).replace('\n', "").chars().any(is_obeyed));
        }
    }
}
