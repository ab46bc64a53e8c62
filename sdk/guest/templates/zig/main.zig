//! Greets whoever the input names.
const wheelwork = @import("wheelwork.zig");

export fn wheelwork_handle(handler: i32) i32 {
    return wheelwork.run(.{greet}, handler);
}

fn greet(ctx: wheelwork.Context) wheelwork.Failed!void {
    var buf: [200]u8 = undefined;
    var name = ctx.input(&buf) catch return ctx.failPermanent("name_too_long", "the name is longer than 200 bytes");
    while (name.len > 0 and (name[name.len - 1] == '\n' or name[name.len - 1] == ' ')) name.len -= 1;
    if (name.len == 0) return ctx.failPermanent("no_name", "the input is empty: give a name");
    ctx.info("greeting");
    ctx.write("hello ");
    ctx.write(name);
    ctx.write("\n");
}
