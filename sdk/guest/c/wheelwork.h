/* wheelwork.h: the functions a handler written in C or C++ imports, major
 * version 1. One file, no library needed. See runtime/abi/wheelwork.wit.
 *
 * Every function that fills a buffer writes at most `cap` bytes and returns the
 * full length, so a larger result means: come back with a larger buffer. A
 * result below 0 is one of the negative WHEELWORK_E numbers. A pointer outside
 * the memory ends the attempt.
 *
 *   clang --target=wasm32 -O2 -mbulk-memory -nostdlib -Wl,--no-entry -o handler.wasm handler.c
 *
 * A module imports only what it calls, so functions of a later minor version
 * cost nothing until they are used.
 */
#ifndef WHEELWORK_H
#define WHEELWORK_H

#ifdef __cplusplus
extern "C" {
#endif

#define WHEELWORK_IMPORT(name) __attribute__((import_module("wheelwork_v1"), import_name(#name)))

/* Goes before the definition: WHEELWORK_EXPORT int wheelwork_handle(int handler) { … } */
#define WHEELWORK_EXPORT __attribute__((export_name("wheelwork_handle")))

/* The same for the optional batch entry: WHEELWORK_EXPORT_RUN int wheelwork_run(int handler) { … } */
#define WHEELWORK_EXPORT_RUN __attribute__((export_name("wheelwork_run")))

/* What wheelwork_handle returns. */
enum { WHEELWORK_OK = 0, WHEELWORK_RETRYABLE = 1, WHEELWORK_PERMANENT = 2, WHEELWORK_CANCELLED = 3 };

/* Levels of wheelwork_log. */
enum { WHEELWORK_DEBUG = 0, WHEELWORK_INFO = 1, WHEELWORK_WARN = 2, WHEELWORK_ERROR = 3 };

/* Kinds of wheelwork_metric_add. */
enum { WHEELWORK_COUNTER = 0, WHEELWORK_GAUGE = 1, WHEELWORK_HISTOGRAM = 2 };

/* What functions return, negative: -WHEELWORK_ENOENT and so on. */
enum {
	WHEELWORK_EAGAIN = 6,       /* a service could not be reached; a later try may help */
	WHEELWORK_EBADF = 8,        /* no such handle */
	WHEELWORK_ECANCELED = 11,   /* the attempt was cancelled, or its deadline passed, meanwhile */
	WHEELWORK_EQUOTA = 19,      /* more calls than the attempt may make */
	WHEELWORK_ECONFLICT = 20,   /* the entry has another version */
	WHEELWORK_EINVAL = 28,      /* an argument that makes no sense */
	WHEELWORK_EIO = 29,         /* a service failed */
	WHEELWORK_EMFILE = 33,      /* more open handles than the attempt may have */
	WHEELWORK_ENOENT = 44,      /* no such parameter, key, secret or checkpoint */
	WHEELWORK_ENOSYS = 52,      /* this host does not serve it */
	WHEELWORK_EOVERFLOW = 61,   /* more than a limit allows */
	WHEELWORK_ENOTCAPABLE = 76, /* the module was not granted it */
};

/* Any version, for wheelwork_kv_cas and wheelwork_kv_delete. */
#define WHEELWORK_ANY_VERSION (-1LL)

/* Length of the input in bytes. */
WHEELWORK_IMPORT(input_len) long long wheelwork_input_len(void);

/* Copies input from offset `off` on; returns how many bytes there are from there to the end. */
WHEELWORK_IMPORT(input_read) int wheelwork_input_read(long long off, void *buf, unsigned cap);

/* Reads a parameter: run_id, app, job, attempt, max_attempts, planned_at_ms,
 * covers, part, parts, deadline_ms, module, digest, handler, trace_parent, or a
 * variable of the job's environment. -WHEELWORK_ENOENT when there is none. */
WHEELWORK_IMPORT(param_get) int wheelwork_param_get(const char *key, unsigned key_len, char *buf, unsigned cap);

/* Appends to the output; more than the limit ends the attempt. */
WHEELWORK_IMPORT(output_write) int wheelwork_output_write(const void *buf, unsigned len);

/* Describes the failure that wheelwork_handle is about to return. `kind` is
 * WHEELWORK_RETRYABLE or WHEELWORK_PERMANENT; retry_after_ms 0 leaves the delay to the job. */
WHEELWORK_IMPORT(fail) int wheelwork_fail(int kind, long long retry_after_ms, const char *code, unsigned code_len, const char *msg, unsigned msg_len);

/* Writes log lines. */
WHEELWORK_IMPORT(log) int wheelwork_log(int level, const char *msg, unsigned len);

/* Tells how far the handler is; total 0 means unknown. */
WHEELWORK_IMPORT(progress) int wheelwork_progress(long long done, long long total, const char *msg, unsigned len);

/* Whether to stop: 0 no, 1 cancelled, 2 the deadline is near. */
WHEELWORK_IMPORT(cancelled) int wheelwork_cancelled(void);

/* Milliseconds since 1970. */
WHEELWORK_IMPORT(now_ms) long long wheelwork_now_ms(void);

/* Fills a buffer with random bytes. */
WHEELWORK_IMPORT(random) int wheelwork_random(void *buf, unsigned len);

/* Since 1.1. */

/* Waits. */
WHEELWORK_IMPORT(sleep) int wheelwork_sleep(long long ms);

/* What an earlier attempt of this run left last, or -WHEELWORK_ENOENT. */
WHEELWORK_IMPORT(checkpoint_get) int wheelwork_checkpoint_get(void *buf, unsigned cap);

/* Keeps data for the next attempt of this run; durable when it returns. */
WHEELWORK_IMPORT(checkpoint_put) int wheelwork_checkpoint_put(const void *buf, unsigned len);

/* Reads a value, or -WHEELWORK_ENOENT. Its version goes to *version unless that is 0. */
WHEELWORK_IMPORT(kv_get) int wheelwork_kv_get(const char *bucket, unsigned bucket_len, const char *key, unsigned key_len, void *buf, unsigned cap, unsigned long long *version);

/* Sets a value, whatever was there, and returns its version. */
WHEELWORK_IMPORT(kv_put) long long wheelwork_kv_put(const char *bucket, unsigned bucket_len, const char *key, unsigned key_len, const void *buf, unsigned len);

/* Sets a value if the entry has the expected version, 0 for no entry; -WHEELWORK_ECONFLICT otherwise. */
WHEELWORK_IMPORT(kv_cas) long long wheelwork_kv_cas(const char *bucket, unsigned bucket_len, const char *key, unsigned key_len, const void *buf, unsigned len, long long expect);

/* Removes an entry that has the expected version. */
WHEELWORK_IMPORT(kv_delete) int wheelwork_kv_delete(const char *bucket, unsigned bucket_len, const char *key, unsigned key_len, long long expect);

/* Makes a run of a job and writes its id. `spec` is JSON: {"job":"name", "input":"text",
 * "input_base64":"…", "key":"idempotency key", "delay_ms":0, "app":"…"}. */
WHEELWORK_IMPORT(job_enqueue) int wheelwork_job_enqueue(const char *spec, unsigned spec_len, char *id, unsigned id_cap);

/* Adds parts to the run: for each its length as a little-endian u32, then its input. */
WHEELWORK_IMPORT(map) int wheelwork_map(const void *inputs, unsigned len);

/* Reads a secret, or -WHEELWORK_ENOENT. */
WHEELWORK_IMPORT(secret_get) int wheelwork_secret_get(const char *name, unsigned name_len, char *buf, unsigned cap);

/* Sends an HTTP request and returns a handle. `head` is JSON: {"method":"GET",
 * "url":"https://…","headers":{"Name":"value"}}. */
WHEELWORK_IMPORT(http_send) int wheelwork_http_send(const char *head, unsigned head_len, const void *body, unsigned body_len);

/* The response's head as JSON: {"status":200,"headers":{"Name":["value"]}}. */
WHEELWORK_IMPORT(http_head) int wheelwork_http_head(int handle, char *buf, unsigned cap);

/* Reads on in the response's body; 0 at its end. */
WHEELWORK_IMPORT(http_recv) int wheelwork_http_recv(int handle, void *buf, unsigned cap);

/* Gives a handle back. */
WHEELWORK_IMPORT(http_close) int wheelwork_http_close(int handle);

/* Adds to a counter, sets a gauge or records into a histogram. */
WHEELWORK_IMPORT(metric_add) int wheelwork_metric_add(const char *name, unsigned name_len, int kind, double value);

/* In wheelwork_run: moves to the next task: 1 there is one, 0 none within the timeout, 2 the batch is over. */
WHEELWORK_IMPORT(job_next) int wheelwork_job_next(int timeout_ms);

/* In wheelwork_run: ends the open task with that status. */
WHEELWORK_IMPORT(job_done) int wheelwork_job_done(int status);

#ifdef __cplusplus
}
#endif

#endif
