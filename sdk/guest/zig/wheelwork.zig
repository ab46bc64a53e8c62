//! wheelwork.zig: what a handler written in Zig needs. One file; put it beside
//! your source. It allocates nothing by itself.
//!
//!     const wheelwork = @import("wheelwork.zig");
//!
//!     export fn wheelwork_handle(handler: i32) i32 {
//!         return wheelwork.run(.{greet}, handler);
//!     }
//!
//!     fn greet(ctx: wheelwork.Context) wheelwork.Failed!void {
//!         var buf: [4096]u8 = undefined;
//!         ctx.write(try ctx.input(&buf));
//!     }
//!
//!     zig build-exe main.zig -target wasm32-freestanding -fno-entry \
//!         --export=wheelwork_handle --stack 65536 -OReleaseSmall -fstrip -femit-bin=handler.wasm
//!
//! The first function given to run is the handler "main"; the manifest names the
//! others in their order. A module imports only what it calls.

pub const sys = struct {
    pub extern "wheelwork_v1" fn input_len() i64;
    pub extern "wheelwork_v1" fn input_read(off: i64, p: [*]u8, cap: u32) i32;
    pub extern "wheelwork_v1" fn param_get(key: [*]const u8, key_len: u32, p: [*]u8, cap: u32) i32;
    pub extern "wheelwork_v1" fn output_write(p: [*]const u8, len: u32) i32;
    pub extern "wheelwork_v1" fn fail(kind: i32, retry_after_ms: i64, code: [*]const u8, code_len: u32, msg: [*]const u8, msg_len: u32) i32;
    pub extern "wheelwork_v1" fn log(level: i32, p: [*]const u8, len: u32) i32;
    pub extern "wheelwork_v1" fn progress(done: i64, total: i64, msg: [*]const u8, len: u32) i32;
    pub extern "wheelwork_v1" fn cancelled() i32;
    pub extern "wheelwork_v1" fn now_ms() i64;
    pub extern "wheelwork_v1" fn random(p: [*]u8, len: u32) i32;
    pub extern "wheelwork_v1" fn sleep(ms: i64) i32;
    pub extern "wheelwork_v1" fn checkpoint_get(p: [*]u8, cap: u32) i32;
    pub extern "wheelwork_v1" fn checkpoint_put(p: [*]const u8, len: u32) i32;
    pub extern "wheelwork_v1" fn kv_get(bucket: [*]const u8, bucket_len: u32, key: [*]const u8, key_len: u32, p: [*]u8, cap: u32, version: ?*u64) i32;
    pub extern "wheelwork_v1" fn kv_put(bucket: [*]const u8, bucket_len: u32, key: [*]const u8, key_len: u32, p: [*]const u8, len: u32) i64;
    pub extern "wheelwork_v1" fn kv_cas(bucket: [*]const u8, bucket_len: u32, key: [*]const u8, key_len: u32, p: [*]const u8, len: u32, expect: i64) i64;
    pub extern "wheelwork_v1" fn kv_delete(bucket: [*]const u8, bucket_len: u32, key: [*]const u8, key_len: u32, expect: i64) i32;
    pub extern "wheelwork_v1" fn job_enqueue(spec: [*]const u8, spec_len: u32, id: [*]u8, id_cap: u32) i32;
    pub extern "wheelwork_v1" fn map(p: [*]const u8, len: u32) i32;
    pub extern "wheelwork_v1" fn secret_get(name: [*]const u8, name_len: u32, p: [*]u8, cap: u32) i32;
    pub extern "wheelwork_v1" fn http_send(head: [*]const u8, head_len: u32, body: [*]const u8, body_len: u32) i32;
    pub extern "wheelwork_v1" fn http_head(handle: i32, p: [*]u8, cap: u32) i32;
    pub extern "wheelwork_v1" fn http_recv(handle: i32, p: [*]u8, cap: u32) i32;
    pub extern "wheelwork_v1" fn http_close(handle: i32) i32;
    pub extern "wheelwork_v1" fn metric_add(name: [*]const u8, name_len: u32, kind: i32, value: f64) i32;
    pub extern "wheelwork_v1" fn job_next(timeout_ms: i32) i32;
    pub extern "wheelwork_v1" fn job_done(status: i32) i32;
};

pub const ok: i32 = 0;
pub const retryable: i32 = 1;
pub const permanent: i32 = 2;
pub const cancelled: i32 = 3;

/// Any version, for Bucket.delete.
pub const any_version: i64 = -1;

/// What a handler returns when it fails: one that was told with
/// Context.failPermanent or Context.failRetryable, a stop that it was asked for,
/// or what a function of the host answered.
pub const Failed = error{ Told, Cancelled } || HostError;

/// What a function of the host answers instead of doing its work.
pub const HostError = error{
    Unavailable, // a service could not be reached; a later try may help
    BadHandle, // no such handle
    Interrupted, // the attempt was cancelled, or its deadline passed, meanwhile
    Quota, // more calls than the attempt may make
    Conflict, // the entry has another version
    Invalid, // an argument that makes no sense
    ServiceFailed,
    Handles, // more open handles than the attempt may have
    NoEntry, // no such parameter, key, secret or checkpoint
    NotServed, // this host does not serve it
    TooLarge, // more than a limit allows
    NotGranted, // the module was not granted it
    Unknown,
    BufferTooSmall, // the answer is longer than the buffer
};

fn check(n: i64) HostError!u64 {
    if (n >= 0) return @intCast(n);
    return switch (-n) {
        6 => error.Unavailable,
        8 => error.BadHandle,
        11 => error.Interrupted,
        19 => error.Quota,
        20 => error.Conflict,
        28 => error.Invalid,
        29 => error.ServiceFailed,
        33 => error.Handles,
        44 => error.NoEntry,
        52 => error.NotServed,
        61 => error.TooLarge,
        76 => error.NotGranted,
        else => error.Unknown,
    };
}

/// The part of buf that was filled.
fn filled(buf: []u8, n: i32) HostError![]u8 {
    const size = try check(n);
    if (size > buf.len) return error.BufferTooSmall;
    return buf[0..@intCast(size)];
}

fn len(data: []const u8) u32 {
    return @intCast(data.len);
}

/// The task at hand.
pub const Context = struct {
    /// Length of the input.
    pub fn inputLen(_: Context) usize {
        return @intCast(sys.input_len());
    }

    /// The whole input, in buf.
    pub fn input(_: Context, buf: []u8) HostError![]u8 {
        return filled(buf, sys.input_read(0, buf.ptr, len(buf)));
    }

    /// The part of the input from an offset on that fits into buf.
    pub fn inputAt(_: Context, off: usize, buf: []u8) []u8 {
        const rest: usize = @intCast(sys.input_read(@intCast(off), buf.ptr, len(buf)));
        return buf[0..@min(rest, buf.len)];
    }

    /// Appends to the output; more than the limit ends the attempt.
    pub fn write(_: Context, data: []const u8) void {
        _ = sys.output_write(data.ptr, len(data));
    }

    /// What the task tells about itself, or a variable of the job; null when there is none.
    pub fn param(_: Context, name: []const u8, buf: []u8) error{BufferTooSmall}!?[]u8 {
        return filled(buf, sys.param_get(name.ptr, len(name), buf.ptr, len(buf))) catch |e| switch (e) {
            error.BufferTooSmall => error.BufferTooSmall,
            else => null,
        };
    }

    pub fn debug(_: Context, text: []const u8) void {
        _ = sys.log(0, text.ptr, len(text));
    }
    pub fn info(_: Context, text: []const u8) void {
        _ = sys.log(1, text.ptr, len(text));
    }
    pub fn warn(_: Context, text: []const u8) void {
        _ = sys.log(2, text.ptr, len(text));
    }
    pub fn err(_: Context, text: []const u8) void {
        _ = sys.log(3, text.ptr, len(text));
    }

    /// Tells how far the handler is; total 0 means unknown.
    pub fn progress(_: Context, done: i64, total: i64, message: []const u8) void {
        _ = sys.progress(done, total, message.ptr, len(message));
    }

    /// Whether to stop: it was cancelled, or its deadline is near. A handler that does returns error.Cancelled.
    pub fn isCancelled(_: Context) bool {
        return sys.cancelled() != 0;
    }

    /// The host's clock in milliseconds since 1970.
    pub fn nowMs(_: Context) i64 {
        return sys.now_ms();
    }

    /// Fills a buffer with random bytes of cryptographic quality.
    pub fn random(_: Context, buf: []u8) void {
        _ = sys.random(buf.ptr, len(buf));
    }

    /// Waits.
    pub fn sleepMs(_: Context, ms: i64) void {
        _ = sys.sleep(ms);
    }

    /// Another attempt would meet it again: `return ctx.failPermanent("code", "text");`
    pub fn failPermanent(_: Context, code: []const u8, message: []const u8) error{Told} {
        _ = sys.fail(permanent, 0, code.ptr, len(code), message.ptr, len(message));
        told = permanent;
        return error.Told;
    }

    /// Another attempt, not before so many milliseconds, may not meet it.
    pub fn failRetryable(_: Context, code: []const u8, message: []const u8, after_ms: i64) error{Told} {
        _ = sys.fail(retryable, after_ms, code.ptr, len(code), message.ptr, len(message));
        told = retryable;
        return error.Told;
    }

    /// What an earlier attempt of this run left last.
    pub fn checkpoint(_: Context, buf: []u8) HostError![]u8 {
        return filled(buf, sys.checkpoint_get(buf.ptr, len(buf)));
    }

    /// Keeps data for the next attempt of this run; durable when it returns.
    pub fn setCheckpoint(_: Context, data: []const u8) HostError!void {
        _ = try check(sys.checkpoint_put(data.ptr, len(data)));
    }

    /// A bucket of the app.
    pub fn kv(_: Context, name: []const u8) Bucket {
        return .{ .name = name };
    }

    /// Makes a run of a job and returns its id in buf, of which 64 bytes are enough. spec is JSON, see the WIT.
    pub fn enqueue(_: Context, spec: []const u8, buf: []u8) HostError![]u8 {
        return filled(buf, sys.job_enqueue(spec.ptr, len(spec), buf.ptr, len(buf)));
    }

    /// Adds parts to the run: for each its length as a little-endian u32, then its input.
    pub fn map(_: Context, inputs: []const u8) HostError!void {
        _ = try check(sys.map(inputs.ptr, len(inputs)));
    }

    /// A secret of the app.
    pub fn secret(_: Context, name: []const u8, buf: []u8) HostError![]u8 {
        return filled(buf, sys.secret_get(name.ptr, len(name), buf.ptr, len(buf)));
    }

    /// Sends an HTTP request; head is JSON, see the WIT. Close the response.
    pub fn http(_: Context, head: []const u8, body: []const u8) HostError!Response {
        return .{ .handle = @intCast(try check(sys.http_send(head.ptr, len(head), body.ptr, len(body)))) };
    }

    /// Adds to a counter.
    pub fn count(_: Context, name: []const u8, value: f64) void {
        _ = sys.metric_add(name.ptr, len(name), 0, value);
    }
    /// Sets a gauge.
    pub fn gauge(_: Context, name: []const u8, value: f64) void {
        _ = sys.metric_add(name.ptr, len(name), 1, value);
    }
    /// Records into a histogram.
    pub fn observe(_: Context, name: []const u8, value: f64) void {
        _ = sys.metric_add(name.ptr, len(name), 2, value);
    }
};

/// A bucket of values.
pub const Bucket = struct {
    name: []const u8,

    pub const Entry = struct { value: []u8, version: u64 };

    /// The value, in buf, and its version.
    pub fn get(b: Bucket, key: []const u8, buf: []u8) HostError!Entry {
        var version: u64 = 0;
        const value = try filled(buf, sys.kv_get(b.name.ptr, len(b.name), key.ptr, len(key), buf.ptr, len(buf), &version));
        return .{ .value = value, .version = version };
    }

    /// Sets a value, whatever was there, and returns its version.
    pub fn put(b: Bucket, key: []const u8, value: []const u8) HostError!u64 {
        return check(sys.kv_put(b.name.ptr, len(b.name), key.ptr, len(key), value.ptr, len(value)));
    }

    /// Sets a value if the entry has the expected version, 0 for no entry at all.
    pub fn cas(b: Bucket, key: []const u8, value: []const u8, expect: u64) HostError!u64 {
        return check(sys.kv_cas(b.name.ptr, len(b.name), key.ptr, len(key), value.ptr, len(value), @intCast(expect)));
    }

    /// Removes an entry that has the expected version, or any_version.
    pub fn delete(b: Bucket, key: []const u8, expect: i64) HostError!void {
        _ = try check(sys.kv_delete(b.name.ptr, len(b.name), key.ptr, len(key), expect));
    }
};

/// The answer to an HTTP request.
pub const Response = struct {
    handle: i32,

    /// Status and headers as JSON, in buf.
    pub fn head(r: Response, buf: []u8) HostError![]u8 {
        return filled(buf, sys.http_head(r.handle, buf.ptr, len(buf)));
    }

    /// Reads on in the body; nothing is left when the result is empty.
    pub fn read(r: Response, buf: []u8) HostError![]u8 {
        return buf[0..@intCast(try check(sys.http_recv(r.handle, buf.ptr, len(buf))))];
    }

    pub fn close(r: Response) void {
        _ = sys.http_close(r.handle);
    }
};

// The status that goes with what was told last.
var told: i32 = retryable;

/// Runs a handler to its status. handlers is a tuple of functions
/// `fn (ctx: Context) Failed!void`.
pub fn run(comptime handlers: anytype, index: i32) i32 {
    const ctx: Context = .{};
    inline for (handlers, 0..) |handler, i| {
        if (index == i) {
            handler(ctx) catch |e| return status(ctx, e);
            return ok;
        }
    }
    ctx.failPermanent("no_handler", "the module has no handler of that number") catch {};
    return permanent;
}

fn status(ctx: Context, e: Failed) i32 {
    switch (e) {
        error.Cancelled => return cancelled,
        error.Told => return told,
        else => {
            ctx.failRetryable("", @errorName(e), 0) catch {};
            return retryable;
        },
    }
}

/// Runs a batch, for an exported wheelwork_run.
pub fn runBatch(comptime handlers: anytype, index: i32) i32 {
    while (sys.job_next(0) == 1) {
        _ = sys.job_done(run(handlers, index));
    }
    return ok;
}
