//! `fornax ops`: the op table.

use clap::Args as ClapArgs;
use fornax_compiler::Error;
use fornax_ir::op;
use serde::Serialize;

use super::{Verdict, option_error, print_json};

/// Options of `fornax ops`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The format: text, md or json
    #[arg(long, default_value = "text")]
    format: String,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    class: &'static str,
    operands: String,
    attributes: Vec<&'static str>,
    doc: &'static str,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    let rows: Vec<Row> = op::all()
        .iter()
        .map(|def| Row {
            name: def.name,
            class: def.class.name(),
            operands: def.arity.to_string(),
            attributes: def.attrs.iter().map(|(name, _)| *name).collect(),
            doc: def.doc,
        })
        .collect();
    match args.format.as_str() {
        "json" => print_json(&rows),
        "md" => {
            println!("| op | class | operands | attributes | meaning |\n|---|---|---|---|---|");
            for row in rows {
                println!(
                    "| `{}` | {} | {} | {} | {} |",
                    row.name,
                    row.class,
                    row.operands,
                    row.attributes.join(", "),
                    row.doc.replace('|', "\\|").replace('\n', " ")
                );
            }
        }
        "text" => {
            for row in rows {
                println!("{:<24} {:<12} {}", row.name, row.class, row.attributes.join(", "));
            }
        }
        other => {
            return Err(option_error("--format", format!("`{other}`: use text, md or json")));
        }
    }
    Ok(Verdict::Good)
}
