//! The conformance handler in Zig; see ../README.md for what each case does.
const wheelwork = @import("wheelwork.zig");
const Context = wheelwork.Context;
const Failed = wheelwork.Failed;

export fn wheelwork_handle(handler: i32) i32 {
    return wheelwork.run(.{ runCase, second }, handler);
}

export fn wheelwork_run(handler: i32) i32 {
    return wheelwork.runBatch(.{ runCase, second }, handler);
}

fn second(ctx: Context) Failed!void {
    ctx.write("second");
}

fn equal(a: []const u8, b: []const u8) bool {
    if (a.len != b.len) return false;
    for (a, b) |x, y| if (x != y) return false;
    return true;
}

var buf: [4096]u8 = undefined;

fn text(e: Failed) []const u8 {
    return switch (e) {
        error.NoEntry => "no entry\n",
        error.Conflict => "conflict\n",
        error.NotGranted => "not granted\n",
        else => "error\n",
    };
}

fn hex(ctx: Context, value: u32, digits: u5) void {
    var i = digits;
    while (i > 0) {
        i -= 1;
        ctx.write("0123456789abcdef"[(value >> (4 * i)) & 15 ..][0..1]);
    }
}

fn number(ctx: Context, value: i64) void {
    var digits: [24]u8 = undefined;
    var at: usize = digits.len;
    var v: u64 = @intCast(value);
    while (true) {
        at -= 1;
        digits[at] = '0' + @as(u8, @intCast(v % 10));
        v /= 10;
        if (v == 0) break;
    }
    ctx.write(digits[at..]);
}

fn runCase(ctx: Context) Failed!void {
    var space: [128]u8 = undefined;
    const name: []const u8 = try ctx.param("CASE", &space) orelse "echo";
    if (equal(name, "echo")) {
        var off: usize = 0;
        while (off < ctx.inputLen()) {
            const part = ctx.inputAt(off, &buf);
            ctx.write(part);
            off += part.len;
        }
    } else if (equal(name, "params")) {
        const keys = [_][]const u8{ "run_id", "app", "job", "attempt", "max_attempts", "GREETING", "LONG", "missing" };
        for (keys) |key| {
            ctx.write(key);
            if (try ctx.param(key, &buf)) |value| {
                ctx.write("=");
                ctx.write(value);
                ctx.write("\n");
            } else ctx.write("!\n");
        }
    } else if (equal(name, "checksum")) {
        var h: u32 = 2166136261;
        var off: usize = 0;
        while (off < ctx.inputLen()) {
            const part = ctx.inputAt(off, &buf);
            for (part) |b| h = (h ^ b) *% 16777619;
            off += part.len;
        }
        hex(ctx, h, 8);
    } else if (equal(name, "retryable")) {
        return ctx.failRetryable("busy", "try later: é", 1500);
    } else if (equal(name, "permanent")) {
        return ctx.failPermanent("bad_input", "cannot do that");
    } else if (equal(name, "logs")) {
        ctx.debug("fine");
        ctx.info("one\ntwo");
        ctx.warn("beware: ünï");
        ctx.err("漢字");
    } else if (equal(name, "progress")) {
        ctx.progress(1, 4, "one of four");
        ctx.progress(4, 4, "all ✓");
    } else if (equal(name, "cancelled")) {
        ctx.info("waiting");
        while (!ctx.isCancelled()) {}
        return error.Cancelled;
    } else if (equal(name, "clock")) {
        number(ctx, ctx.nowMs());
    } else if (equal(name, "random")) {
        var b: [16]u8 = undefined;
        ctx.random(&b);
        for (b) |v| hex(ctx, v, 2);
    } else if (equal(name, "sleep")) {
        ctx.sleepMs(20);
        ctx.write("slept");
    } else if (equal(name, "checkpoint")) {
        if (ctx.checkpoint(&buf)) |data| {
            ctx.write(data);
        } else |e| {
            if (e != error.NoEntry) return e;
            try ctx.setCheckpoint("step 1");
            return ctx.failRetryable("again", "the first attempt stops here", 0);
        }
    } else if (equal(name, "kv")) {
        try kv(ctx);
    } else if (equal(name, "enqueue")) {
        ctx.write(try ctx.enqueue("{\"job\":\"next\",\"input\":\"hello\"}", &buf));
    } else if (equal(name, "map")) {
        try ctx.map("\x01\x00\x00\x00a\x00\x00\x00\x00\x03\x00\x00\x00ccc");
    } else if (equal(name, "secret")) {
        ctx.write(ctx.secret("token", &buf) catch |e| text(e));
    } else if (equal(name, "http")) {
        try http(ctx);
    } else if (equal(name, "metric")) {
        ctx.count("orders", 2.5);
        ctx.gauge("load", 0.25);
        ctx.observe("size", 7);
    } else {
        return ctx.failPermanent("no_case", name);
    }
}

fn show(ctx: Context, bucket: wheelwork.Bucket) void {
    const entry = bucket.get("k", &buf) catch |e| return ctx.write(text(e));
    ctx.write(entry.value);
    ctx.write(if (entry.version > 0) "\n" else " without a version\n");
}

fn kv(ctx: Context) Failed!void {
    const state = ctx.kv("state");
    show(ctx, state);
    const first = try state.put("k", "one");
    show(ctx, state);
    _ = try state.cas("k", "two", first);
    _ = state.cas("k", "three", first) catch |e| ctx.write(text(e));
    show(ctx, state);
    try state.delete("k", wheelwork.any_version);
    show(ctx, state);
    _ = ctx.kv("other").put("k", "x") catch |e| ctx.write(text(e));
}

fn http(ctx: Context) Failed!void {
    var head: [4200]u8 = undefined;
    const before = "{\"method\":\"POST\",\"url\":\"";
    const after = "\",\"headers\":{\"X-Case\":\"http\"}}";
    @memcpy(head[0..before.len], before);
    const url = try ctx.input(head[before.len..4096]);
    const n = before.len + url.len;
    @memcpy(head[n..][0..after.len], after);
    const response = ctx.http(head[0 .. n + after.len], "ping") catch |e| return ctx.write(text(e));
    defer response.close();
    ctx.write((try response.head(&buf))[0..13]);
    ctx.write("\n");
    while (true) {
        const part = try response.read(&buf);
        if (part.len == 0) break;
        ctx.write(part);
    }
}
