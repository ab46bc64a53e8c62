"""Greets whoever the input names."""

from wheelwork import Permanent


def main(ctx):
    name = ctx.text().strip()
    if not name:
        raise Permanent("no_name", "the input is empty: give a name")
    ctx.log.info(f"greeting {name}")
    return f"hello {name}\n"
