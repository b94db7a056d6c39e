//! `fornax rules`: the rewrite rules.

use clap::{Args as ClapArgs, Subcommand};
use fornax_compiler::Error;
use fornax_passes::egraph::Rule;
use fornax_passes::rules;
use serde::Serialize;

use super::progress::Progress;
use super::{Verdict, option_error, print_json};

/// Options of `fornax rules`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// The format: text, md or json
    #[arg(long, default_value = "text")]
    format: String,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Evaluate random instances of each rule on both sides
    Verify {
        /// Only rules whose name holds this
        #[arg(default_value = "")]
        filter: String,
        /// Seed of the random instances
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Print the verdicts as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    numerics: String,
    group: String,
    left: &'static str,
    guards: Vec<&'static str>,
    worth: Vec<&'static str>,
    doc: &'static str,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    match args.action {
        None => list(&args.format),
        Some(Action::Verify { filter, seed, json }) => {
            if !rules::all().iter().any(|rule| rule.name.contains(&filter)) {
                let reason = "no rule's name holds this; `fornax rules` lists them";
                return Err(option_error(&format!("rules verify {filter}"), reason));
            }
            Ok(verify(&filter, seed, json))
        }
    }
}

fn row(rule: &Rule) -> Row {
    Row {
        name: rule.name,
        numerics: rule.numerics.to_string(),
        group: rule.group.to_string(),
        left: rule.left.text(),
        guards: rule.guards.iter().map(|guard| guard.name).collect(),
        worth: rule.worth.iter().map(|premise| premise.name).collect(),
        doc: rule.doc,
    }
}

fn list(format: &str) -> Result<Verdict, Error> {
    let rows: Vec<Row> = rules::all().iter().map(row).collect();
    match format {
        "json" => print_json(&rows),
        "md" => {
            println!("| rule | numerics | group | matches | if | worth when | meaning |");
            println!("|---|---|---|---|---|---|---|");
            for row in rows {
                println!(
                    "| `{}` | {} | {} | `{}` | {} | {} | {} |",
                    row.name,
                    row.numerics,
                    row.group,
                    row.left,
                    row.guards.join(", "),
                    row.worth.join(", "),
                    row.doc.replace('|', "\\|")
                );
            }
        }
        "text" => {
            for row in rows {
                let premises = match row.guards.is_empty() {
                    true => String::new(),
                    false => format!(" [{}]", row.guards.join(", ")),
                };
                println!(
                    "{:<28} {:<8} {:<9} {}{premises}",
                    row.name, row.numerics, row.group, row.doc
                );
            }
        }
        other => {
            return Err(option_error("--format", format!("`{other}`: use text, md or json")));
        }
    }
    Ok(Verdict::Good)
}

#[derive(Debug, Serialize)]
struct Verified {
    rule: &'static str,
    numerics: String,
    instances: usize,
    in_prime_field: usize,
    faults: Vec<String>,
}

fn verify(filter: &str, seed: u64, json: bool) -> Verdict {
    let progress = Progress::start("verifying rules");
    let report = rules::verify::verify(filter, seed);
    drop(progress);
    let verdict = if report.passed() { Verdict::Good } else { Verdict::Bad };
    let rows: Vec<Verified> = report
        .verdicts
        .into_iter()
        .map(|verdict| Verified {
            rule: verdict.rule,
            numerics: verdict.numerics.to_string(),
            instances: verdict.instances,
            in_prime_field: verdict.in_field,
            faults: verdict.faults,
        })
        .collect();
    if json {
        print_json(&rows);
        return verdict;
    }
    for row in &rows {
        println!(
            "{:<28} {:<8} {:>3} instances, {:>3} in a prime field",
            row.rule, row.numerics, row.instances, row.in_prime_field
        );
        for fault in &row.faults {
            println!("  WRONG {fault}");
        }
    }
    let caught = report.planted.iter().filter(|(_, caught)| *caught).count();
    let wrong = rows.iter().filter(|row| !row.faults.is_empty()).count();
    println!(
        "{} rules, {wrong} wrong; {} guards, each needed; {caught} of {} planted rules caught",
        rows.len(),
        report.guards,
        report.planted.len()
    );
    verdict
}
