//! wheelwork.rs: what a handler written in Rust needs. One file, no crates, and
//! any compiler from 1.63 on; put it beside your source and say `mod wheelwork;`.
//!
//! ```ignore
//! mod wheelwork;
//! use wheelwork::{Context, Failure};
//!
//! wheelwork::handlers!(greet);
//!
//! fn greet(ctx: &Context) -> Result<(), Failure> {
//!     ctx.info("hello");
//!     ctx.write(&ctx.input());
//!     Ok(())
//! }
//! ```
//!
//!     rustc --edition 2021 -O -C panic=abort -C strip=symbols --crate-type cdylib \
//!         --target wasm32-unknown-unknown -C link-arg=-zstack-size=65536 -o handler.wasm main.rs
//!
//! The first function given to `handlers!` is the handler "main"; the manifest
//! names the others in their order. A module imports only what it calls.
#![allow(dead_code)]

mod sys {
    #[link(wasm_import_module = "wheelwork_v1")]
    extern "C" {
        pub fn input_len() -> i64;
        pub fn input_read(off: i64, p: *mut u8, cap: u32) -> i32;
        pub fn param_get(key: *const u8, key_len: u32, p: *mut u8, cap: u32) -> i32;
        pub fn output_write(p: *const u8, len: u32) -> i32;
        pub fn fail(kind: i32, retry_after_ms: i64, code: *const u8, code_len: u32, msg: *const u8, msg_len: u32) -> i32;
        pub fn log(level: i32, p: *const u8, len: u32) -> i32;
        pub fn progress(done: i64, total: i64, msg: *const u8, len: u32) -> i32;
        pub fn cancelled() -> i32;
        pub fn now_ms() -> i64;
        pub fn random(p: *mut u8, len: u32) -> i32;
        pub fn sleep(ms: i64) -> i32;
        pub fn checkpoint_get(p: *mut u8, cap: u32) -> i32;
        pub fn checkpoint_put(p: *const u8, len: u32) -> i32;
        pub fn kv_get(bucket: *const u8, bucket_len: u32, key: *const u8, key_len: u32, p: *mut u8, cap: u32, version: *mut u64) -> i32;
        pub fn kv_put(bucket: *const u8, bucket_len: u32, key: *const u8, key_len: u32, p: *const u8, len: u32) -> i64;
        pub fn kv_cas(bucket: *const u8, bucket_len: u32, key: *const u8, key_len: u32, p: *const u8, len: u32, expect: i64) -> i64;
        pub fn kv_delete(bucket: *const u8, bucket_len: u32, key: *const u8, key_len: u32, expect: i64) -> i32;
        pub fn job_enqueue(spec: *const u8, spec_len: u32, id: *mut u8, id_cap: u32) -> i32;
        pub fn map(p: *const u8, len: u32) -> i32;
        pub fn secret_get(name: *const u8, name_len: u32, p: *mut u8, cap: u32) -> i32;
        pub fn http_send(head: *const u8, head_len: u32, body: *const u8, body_len: u32) -> i32;
        pub fn http_head(handle: i32, p: *mut u8, cap: u32) -> i32;
        pub fn http_recv(handle: i32, p: *mut u8, cap: u32) -> i32;
        pub fn http_close(handle: i32) -> i32;
        pub fn metric_add(name: *const u8, name_len: u32, kind: i32, value: f64) -> i32;
        pub fn job_next(timeout_ms: i32) -> i32;
        pub fn job_done(status: i32) -> i32;
    }
}

pub const OK: i32 = 0;
pub const RETRYABLE: i32 = 1;
pub const PERMANENT: i32 = 2;
pub const CANCELLED: i32 = 3;

/// Why a handler fails.
#[derive(Debug)]
pub struct Failure {
    pub code: String,
    pub message: String,
    pub permanent: bool,
    pub retry_after_ms: i64,
    cancelled: bool,
}

impl Failure {
    /// Another attempt would meet it again.
    pub fn permanent(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.into(), message: message.into(), permanent: true, retry_after_ms: 0, cancelled: false }
    }

    /// Another attempt, not before so many milliseconds, may not meet it. 0 leaves the delay to the job.
    pub fn retryable(code: &str, message: impl Into<String>, after_ms: i64) -> Failure {
        Failure { code: code.into(), message: message.into(), permanent: false, retry_after_ms: after_ms, cancelled: false }
    }

    /// The handler stopped because `cancelled` said so.
    pub fn cancelled() -> Failure {
        Failure { code: String::new(), message: "cancelled".into(), permanent: false, retry_after_ms: 0, cancelled: true }
    }
}

/// Every error is a retryable failure, so that `?` works.
impl<E: std::fmt::Display> From<E> for Failure {
    fn from(e: E) -> Failure {
        Failure::retryable("", e.to_string(), 0)
    }
}

/// What a function of the host answers instead of doing its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    Unavailable,  // a service could not be reached; a later try may help
    BadHandle,    // no such handle
    Cancelled,    // the attempt was cancelled, or its deadline passed, meanwhile
    Quota,        // more calls than the attempt may make
    Conflict,     // the entry has another version
    Invalid,      // an argument that makes no sense
    Io,           // a service failed
    Handles,      // more open handles than the attempt may have
    NoEntry,      // no such key, secret or checkpoint
    NotServed,    // this host does not serve it
    TooLarge,     // more than a limit allows
    NotGranted,   // the module was not granted it
    Other(i32),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Other(n) => write!(f, "error {} of the host", n),
            e => write!(f, "{:?}", e),
        }
    }
}

fn check(n: i64) -> Result<i64, Error> {
    if n >= 0 {
        return Ok(n);
    }
    Err(match -n {
        6 => Error::Unavailable,
        8 => Error::BadHandle,
        11 => Error::Cancelled,
        19 => Error::Quota,
        20 => Error::Conflict,
        28 => Error::Invalid,
        29 => Error::Io,
        33 => Error::Handles,
        44 => Error::NoEntry,
        52 => Error::NotServed,
        61 => Error::TooLarge,
        76 => Error::NotGranted,
        e => Error::Other(e as i32),
    })
}

/// Calls read with a buffer until it is large enough.
fn fill(cap: usize, mut read: impl FnMut(*mut u8, u32) -> i32) -> Result<Vec<u8>, Error> {
    let mut buf = vec![0u8; cap];
    loop {
        let n = check(read(buf.as_mut_ptr(), buf.len() as u32) as i64)? as usize;
        if n <= buf.len() {
            buf.truncate(n);
            return Ok(buf);
        }
        buf.resize(n, 0);
    }
}

/// The task at hand.
pub struct Context(());

impl Context {
    /// The input.
    pub fn input(&self) -> Vec<u8> {
        let mut buf = vec![0u8; unsafe { sys::input_len() } as usize];
        unsafe { sys::input_read(0, buf.as_mut_ptr(), buf.len() as u32) };
        buf
    }

    /// Appends to the output; more than the limit ends the attempt.
    pub fn write(&self, data: &[u8]) {
        unsafe { sys::output_write(data.as_ptr(), data.len() as u32) };
    }

    /// What the task tells about itself, or a variable of the job.
    pub fn param(&self, name: &str) -> Option<String> {
        let value = fill(128, |p, cap| unsafe { sys::param_get(name.as_ptr(), name.len() as u32, p, cap) }).ok()?;
        Some(String::from_utf8_lossy(&value).into_owned())
    }

    pub fn debug(&self, text: &str) { self.log(0, text) }
    pub fn info(&self, text: &str) { self.log(1, text) }
    pub fn warn(&self, text: &str) { self.log(2, text) }
    pub fn error(&self, text: &str) { self.log(3, text) }

    fn log(&self, level: i32, text: &str) {
        unsafe { sys::log(level, text.as_ptr(), text.len() as u32) };
    }

    /// Tells how far the handler is; total 0 means unknown.
    pub fn progress(&self, done: i64, total: i64, message: &str) {
        unsafe { sys::progress(done, total, message.as_ptr(), message.len() as u32) };
    }

    /// Whether to stop: it was cancelled, or its deadline is near.
    pub fn cancelled(&self) -> bool { unsafe { sys::cancelled() != 0 } }

    /// The host's clock in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 { unsafe { sys::now_ms() } }

    /// Fills a buffer with random bytes of cryptographic quality.
    pub fn random(&self, buf: &mut [u8]) {
        unsafe { sys::random(buf.as_mut_ptr(), buf.len() as u32) };
    }

    /// Waits.
    pub fn sleep_ms(&self, ms: i64) { unsafe { sys::sleep(ms) }; }

    /// What an earlier attempt of this run left last.
    pub fn checkpoint(&self) -> Result<Vec<u8>, Error> {
        fill(1024, |p, cap| unsafe { sys::checkpoint_get(p, cap) })
    }

    /// Keeps data for the next attempt of this run; durable when it returns.
    pub fn set_checkpoint(&self, data: &[u8]) -> Result<(), Error> {
        check(unsafe { sys::checkpoint_put(data.as_ptr(), data.len() as u32) } as i64).map(|_| ())
    }

    /// A bucket of the app.
    pub fn kv<'a>(&self, bucket: &'a str) -> Bucket<'a> { Bucket { name: bucket } }

    /// Makes a run of a job and returns its id. spec is JSON, see the WIT.
    pub fn enqueue(&self, spec: &str) -> Result<String, Error> {
        let mut id = [0u8; 128]; // longer than any id: the call must not be made twice
        let n = check(unsafe { sys::job_enqueue(spec.as_ptr(), spec.len() as u32, id.as_mut_ptr(), id.len() as u32) } as i64)?;
        Ok(String::from_utf8_lossy(&id[..(n as usize).min(id.len())]).into_owned())
    }

    /// Adds parts to the run, each with an input.
    pub fn map(&self, inputs: &[&[u8]]) -> Result<(), Error> {
        let mut buf = Vec::new();
        for input in inputs {
            buf.extend_from_slice(&(input.len() as u32).to_le_bytes());
            buf.extend_from_slice(input);
        }
        check(unsafe { sys::map(buf.as_ptr(), buf.len() as u32) } as i64).map(|_| ())
    }

    /// A secret of the app.
    pub fn secret(&self, name: &str) -> Result<Vec<u8>, Error> {
        fill(256, |p, cap| unsafe { sys::secret_get(name.as_ptr(), name.len() as u32, p, cap) })
    }

    /// Sends an HTTP request; head is JSON, see the WIT.
    pub fn http(&self, head: &str, body: &[u8]) -> Result<Response, Error> {
        let handle = check(unsafe { sys::http_send(head.as_ptr(), head.len() as u32, body.as_ptr(), body.len() as u32) } as i64)?;
        Ok(Response { handle: handle as i32 })
    }

    /// Adds to a counter.
    pub fn count(&self, name: &str, value: f64) { self.metric(name, 0, value) }

    /// Sets a gauge.
    pub fn gauge(&self, name: &str, value: f64) { self.metric(name, 1, value) }

    /// Records into a histogram.
    pub fn observe(&self, name: &str, value: f64) { self.metric(name, 2, value) }

    fn metric(&self, name: &str, kind: i32, value: f64) {
        unsafe { sys::metric_add(name.as_ptr(), name.len() as u32, kind, value) };
    }
}

/// A bucket of values.
pub struct Bucket<'a> {
    name: &'a str,
}

impl<'a> Bucket<'a> {
    /// The value and its version.
    pub fn get(&self, key: &str) -> Result<(Vec<u8>, u64), Error> {
        let mut version = 0u64;
        let b = self.name;
        let value = fill(1024, |p, cap| unsafe {
            sys::kv_get(b.as_ptr(), b.len() as u32, key.as_ptr(), key.len() as u32, p, cap, &mut version)
        })?;
        Ok((value, version))
    }

    /// Sets a value, whatever was there, and returns its version.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<u64, Error> {
        let b = self.name;
        let n = unsafe { sys::kv_put(b.as_ptr(), b.len() as u32, key.as_ptr(), key.len() as u32, value.as_ptr(), value.len() as u32) };
        check(n).map(|v| v as u64)
    }

    /// Sets a value if the entry has the expected version, 0 for no entry at all.
    pub fn cas(&self, key: &str, value: &[u8], expect: u64) -> Result<u64, Error> {
        let b = self.name;
        let n = unsafe { sys::kv_cas(b.as_ptr(), b.len() as u32, key.as_ptr(), key.len() as u32, value.as_ptr(), value.len() as u32, expect as i64) };
        check(n).map(|v| v as u64)
    }

    /// Removes an entry, of whatever version.
    pub fn delete(&self, key: &str) -> Result<(), Error> {
        let b = self.name;
        check(unsafe { sys::kv_delete(b.as_ptr(), b.len() as u32, key.as_ptr(), key.len() as u32, -1) } as i64).map(|_| ())
    }
}

/// The answer to an HTTP request. Dropping it gives its handle back.
pub struct Response {
    handle: i32,
}

impl Response {
    /// Status and headers as JSON.
    pub fn head(&self) -> Result<String, Error> {
        let head = fill(1024, |p, cap| unsafe { sys::http_head(self.handle, p, cap) })?;
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    /// Reads on in the body; 0 at its end.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize, Error> {
        check(unsafe { sys::http_recv(self.handle, buf.as_mut_ptr(), buf.len() as u32) } as i64).map(|n| n as usize)
    }

    /// The rest of the body.
    pub fn body(&self) -> Result<Vec<u8>, Error> {
        let (mut all, mut buf) = (Vec::new(), [0u8; 4096]);
        loop {
            match self.read(&mut buf)? {
                0 => return Ok(all),
                n => all.extend_from_slice(&buf[..n]),
            }
        }
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        unsafe { sys::http_close(self.handle) };
    }
}

/// Runs a handler to its status. `handlers!` calls it.
pub fn run(handlers: &[fn(&Context) -> Result<(), Failure>], index: i32) -> i32 {
    // A panic ends the attempt with a trap, which says nothing: the log does.
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        unsafe { sys::log(3, text.as_ptr(), text.len() as u32) };
    }));
    let result = match handlers.get(index as usize) {
        Some(handler) => handler(&Context(())),
        None => Err(Failure::permanent("no_handler", format!("the module has {} handlers, the host asked for number {}", handlers.len(), index))),
    };
    match result {
        Ok(()) => OK,
        Err(f) if f.cancelled => CANCELLED,
        Err(f) => {
            let kind = if f.permanent { PERMANENT } else { RETRYABLE };
            unsafe {
                sys::fail(kind, f.retry_after_ms, f.code.as_ptr(), f.code.len() as u32, f.message.as_ptr(), f.message.len() as u32)
            };
            kind
        }
    }
}

/// Runs a batch. `batch_handlers!` calls it.
pub fn run_batch(handlers: &[fn(&Context) -> Result<(), Failure>], index: i32) -> i32 {
    loop {
        match unsafe { sys::job_next(0) } {
            1 => unsafe { sys::job_done(run(handlers, index)) },
            _ => return OK,
        };
    }
}

/// Exports the handlers, in the order of the manifest.
#[macro_export]
macro_rules! handlers {
    ($($handler:path),+ $(,)?) => {
        #[no_mangle]
        pub extern "C" fn wheelwork_handle(index: i32) -> i32 {
            $crate::wheelwork::run(&[$($handler),+], index)
        }
    };
}

/// The same for handlers that also take several tasks in one call of the module.
/// State in memory is then shared by the tasks of a batch.
#[macro_export]
macro_rules! batch_handlers {
    ($($handler:path),+ $(,)?) => {
        $crate::handlers!($($handler),+);

        #[no_mangle]
        pub extern "C" fn wheelwork_run(index: i32) -> i32 {
            $crate::wheelwork::run_batch(&[$($handler),+], index)
        }
    };
}

pub use {batch_handlers, handlers};
