//! The conformance handler in Rust; see ../README.md for what each case does.
mod wheelwork;

use wheelwork::{Context, Error, Failure};

wheelwork::batch_handlers!(run_case, second);

fn second(ctx: &Context) -> Result<(), Failure> {
    ctx.write(b"second");
    Ok(())
}

fn text(e: Error) -> &'static str {
    match e {
        Error::NoEntry => "no entry\n",
        Error::Conflict => "conflict\n",
        Error::NotGranted => "not granted\n",
        _ => "error\n",
    }
}

fn run_case(ctx: &Context) -> Result<(), Failure> {
    let name = ctx.param("CASE").unwrap_or_else(|| "echo".into());
    match name.as_str() {
        "echo" => ctx.write(&ctx.input()),
        "params" => {
            for key in ["run_id", "app", "job", "attempt", "max_attempts", "GREETING", "LONG", "missing"] {
                let line = match ctx.param(key) {
                    Some(value) => format!("{}={}\n", key, value),
                    None => format!("{}!\n", key),
                };
                ctx.write(line.as_bytes());
            }
        }
        "checksum" => {
            let h = ctx.input().iter().fold(2166136261u32, |h, b| (h ^ *b as u32).wrapping_mul(16777619));
            ctx.write(format!("{:08x}", h).as_bytes());
        }
        "retryable" => return Err(Failure::retryable("busy", "try later: é", 1500)),
        "permanent" => return Err(Failure::permanent("bad_input", "cannot do that")),
        "logs" => {
            ctx.debug("fine");
            ctx.info("one\ntwo");
            ctx.warn("beware: ünï");
            ctx.error("漢字");
        }
        "progress" => {
            ctx.progress(1, 4, "one of four");
            ctx.progress(4, 4, "all ✓");
        }
        "cancelled" => {
            ctx.info("waiting");
            while !ctx.cancelled() {}
            return Err(Failure::cancelled());
        }
        "clock" => ctx.write(ctx.now_ms().to_string().as_bytes()),
        "random" => {
            let mut b = [0u8; 16];
            ctx.random(&mut b);
            for v in b {
                ctx.write(format!("{:02x}", v).as_bytes());
            }
        }
        "sleep" => {
            ctx.sleep_ms(20);
            ctx.write(b"slept");
        }
        "checkpoint" => match ctx.checkpoint() {
            Ok(data) => ctx.write(&data),
            Err(Error::NoEntry) => {
                ctx.set_checkpoint(b"step 1")?;
                return Err(Failure::retryable("again", "the first attempt stops here", 0));
            }
            Err(e) => return Err(e.into()),
        },
        "kv" => kv(ctx)?,
        "enqueue" => ctx.write(ctx.enqueue(r#"{"job":"next","input":"hello"}"#)?.as_bytes()),
        "map" => ctx.map(&[b"a", b"", b"ccc"])?,
        "secret" => match ctx.secret("token") {
            Ok(value) => ctx.write(&value),
            Err(e) => ctx.write(text(e).as_bytes()),
        },
        "http" => {
            let url = String::from_utf8_lossy(&ctx.input()).into_owned();
            let head = format!(r#"{{"method":"POST","url":"{}","headers":{{"X-Case":"http"}}}}"#, url);
            match ctx.http(&head, b"ping") {
                Ok(response) => {
                    ctx.write(&response.head()?.as_bytes()[..13]);
                    ctx.write(b"\n");
                    ctx.write(&response.body()?);
                }
                Err(e) => ctx.write(text(e).as_bytes()),
            }
        }
        "metric" => {
            ctx.count("orders", 2.5);
            ctx.gauge("load", 0.25);
            ctx.observe("size", 7.0);
        }
        other => return Err(Failure::permanent("no_case", other)),
    }
    Ok(())
}

fn kv(ctx: &Context) -> Result<(), Failure> {
    let state = ctx.kv("state");
    let show = || match state.get("k") {
        Ok((value, version)) => {
            ctx.write(&value);
            ctx.write(if version > 0 { b"\n" } else { b" without a version\n" });
        }
        Err(e) => ctx.write(text(e).as_bytes()),
    };
    show();
    let first = state.put("k", b"one")?;
    show();
    state.cas("k", b"two", first)?;
    if let Err(e) = state.cas("k", b"three", first) {
        ctx.write(text(e).as_bytes());
    }
    show();
    state.delete("k")?;
    show();
    if let Err(e) = ctx.kv("other").put("k", b"x") {
        ctx.write(text(e).as_bytes());
    }
    Ok(())
}
