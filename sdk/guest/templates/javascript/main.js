// Greets whoever the input names.
/// <reference path="./wheelwork.d.ts" />
import { Permanent } from "wheelwork";

/** @type {import("wheelwork").Handler} */
export default function main(ctx) {
  const name = ctx.text().trim();
  if (name === "") throw new Permanent("no_name", "the input is empty: give a name");
  ctx.log.info("greeting", name);
  return `hello ${name}\n`;
}
