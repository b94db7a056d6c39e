//! `fornax run`

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use fornax_bundle::Tensor;
use fornax_bundle::manifest::Port;
use fornax_compiler::{Error, Loaded, tensors};
use fornax_runtime::{Memory, open_device};

use super::{Verdict, option_error, print_json};

/// Options of `fornax run`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// The bundle
    bundle: PathBuf,
    /// An input from a file, as in x=x.npy (repeatable), or all inputs by name from one .npz
    #[arg(long, value_name = "NAME=FILE.npy|FILE.npz", required = true)]
    input: Vec<String>,
    /// The folder for the outputs, one .npy each; made if it is not there
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// The device: cuda, cuda:INDEX or emulator
    #[arg(long, default_value = "cuda")]
    device: String,
    /// The target plan to run, such as sm_80; the best that the device takes unless said
    #[arg(long)]
    target: Option<String>,
    /// Values of the weights that the bundle does not hold (.safetensors)
    #[arg(long)]
    weights: Option<PathBuf>,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<Verdict, Error> {
    if args.output.exists() && !args.output.is_dir() {
        let reason = "it is no folder; outputs are written into one".to_owned();
        return Err(Error::File { path: args.output, reason });
    }
    let device = open_device(&args.device)?;
    let loaded = Loaded::open(
        &args.bundle,
        device,
        args.target.as_deref(),
        args.weights.as_deref(),
        Memory::Planned,
    )?;
    let signature = &loaded.bundle.manifest().signature;
    let inputs = read_inputs(&args.input, &signature.inputs)?;
    let outputs = loaded.session.run(&inputs)?;
    std::fs::create_dir_all(&args.output)
        .map_err(|error| Error::File { path: args.output.clone(), reason: error.to_string() })?;
    let mut written = BTreeMap::new();
    for (port, tensor) in signature.outputs.iter().zip(&outputs) {
        let path = args.output.join(format!("{}.npy", file_name(&port.name)));
        tensors::write_npy(&path, tensor)?;
        if !args.json {
            println!("{}: {}{:?}", path.display(), port.dtype, tensor.shape());
        }
        written.insert(port.name.clone(), path);
    }
    if args.json {
        print_json(&written);
    }
    Ok(Verdict::Good)
}

/// Inputs in the signature's order, from `name=file.npy` and `.npz` arguments.
pub(crate) fn read_inputs(arguments: &[String], ports: &[Port]) -> Result<Vec<Tensor>, Error> {
    let mut given: BTreeMap<String, Tensor> = BTreeMap::new();
    for argument in arguments {
        match argument.rsplit_once('=') {
            Some((name, path)) => {
                if given.insert(name.to_owned(), tensors::read_npy(path.as_ref())?).is_some() {
                    let reason = format!("the input `{name}` is given twice");
                    return Err(option_error("--input", reason));
                }
            }
            None if argument.ends_with(".npy") => {
                let reason = format!("say which input it is: NAME={argument}");
                return Err(option_error("--input", reason));
            }
            None => given.extend(tensors::read_npz(argument.as_ref())?),
        }
    }
    let named: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let unknown = |name: &&String| {
        !named.contains(&name.as_str())
            && arguments.iter().any(|argument| argument.starts_with(&format!("{name}=")))
    };
    if let Some(name) = given.keys().find(unknown) {
        let reason = format!("the model has no input `{name}`; it has: {}", named.join(", "));
        return Err(option_error("--input", reason));
    }
    ports
        .iter()
        .map(|port| {
            given.get(&port.name).cloned().ok_or_else(|| {
                let reason = format!("input `{0}` is missing: give {0}=FILE.npy", port.name);
                option_error("--input", reason)
            })
        })
        .collect()
}

/// A file name for an output: what is no letter, digit, `.`, `_` or `-` becomes `_`.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}
