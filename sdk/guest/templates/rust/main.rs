//! Greets whoever the input names.
mod wheelwork;

use wheelwork::{Context, Failure};

wheelwork::handlers!(greet);

fn greet(ctx: &Context) -> Result<(), Failure> {
    let input = ctx.input();
    let name = std::str::from_utf8(&input)?.trim();
    if name.is_empty() {
        return Err(Failure::permanent("no_name", "the input is empty: give a name"));
    }
    ctx.info(&format!("greeting {}", name));
    ctx.write(format!("hello {}\n", name).as_bytes());
    Ok(())
}
