// Greets whoever the input names.
import { Context, OK, run } from "./wheelwork";

export function wheelwork_handle(handler: i32): i32 { return run([greet], handler); }

function greet(ctx: Context): i32 {
  const name = ctx.text().trim();
  if (name.length == 0) return ctx.failPermanent("no_name", "the input is empty: give a name");
  ctx.info("greeting " + name);
  ctx.writeText("hello " + name + "\n");
  return OK;
}
