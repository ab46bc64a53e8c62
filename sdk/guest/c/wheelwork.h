/* wheelwork.h: the functions a handler written in C or C++ imports, major
 * version 1. One file, no library needed. See runtime/abi/wheelwork.wit.
 *
 * Every function that fills a buffer writes at most `cap` bytes and returns the
 * full length, so a larger result means: come back with a larger buffer. A
 * result below 0 is a negative WASI error number. A pointer outside the memory
 * ends the attempt.
 *
 *   clang --target=wasm32 -O2 -mbulk-memory -nostdlib -Wl,--no-entry -o handler.wasm handler.c
 */
#ifndef WHEELWORK_H
#define WHEELWORK_H

#ifdef __cplusplus
extern "C" {
#endif

#define WHEELWORK_IMPORT(name) __attribute__((import_module("wheelwork_v1"), import_name(#name)))

/* Goes before the definition: WHEELWORK_EXPORT int wheelwork_handle(int handler) { … }
 * WHEELWORK_EXPORT_RUN and _DESCRIBE likewise, for int wheelwork_run(int handler)
 * and void wheelwork_describe(void); both are optional. */
#define WHEELWORK_EXPORT __attribute__((export_name("wheelwork_handle")))
#define WHEELWORK_EXPORT_RUN __attribute__((export_name("wheelwork_run")))
#define WHEELWORK_EXPORT_DESCRIBE __attribute__((export_name("wheelwork_describe")))

/* What wheelwork_handle returns. */
enum { WHEELWORK_OK = 0, WHEELWORK_RETRYABLE = 1, WHEELWORK_PERMANENT = 2, WHEELWORK_CANCELLED = 3 };

/* Levels of wheelwork_log. */
enum { WHEELWORK_DEBUG = 0, WHEELWORK_INFO = 1, WHEELWORK_WARN = 2, WHEELWORK_ERROR = 3 };

/* Length of the input in bytes. */
WHEELWORK_IMPORT(input_len) long long wheelwork_input_len(void);

/* Copies input from offset `off` on; returns how many bytes there are from there to the end. */
WHEELWORK_IMPORT(input_read) int wheelwork_input_read(long long off, void *buf, unsigned cap);

/* Reads a parameter: run_id, app, job, attempt, max_attempts, planned_at_ms,
 * deadline_ms, module, digest, handler, trace_parent, or a variable of the
 * job's environment. -44 when there is none. */
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

/* Since wheelwork_v1.1. What needs a grant answers -76 without one; see docs/abi.md. */

/* Waits; ends with the attempt. */
WHEELWORK_IMPORT(sleep) int wheelwork_sleep(long long ms);

/* What an earlier attempt of this run left last, or -44. */
WHEELWORK_IMPORT(checkpoint_get) int wheelwork_checkpoint_get(void *buf, unsigned cap);

/* Keeps data for the next attempt of this run. */
WHEELWORK_IMPORT(checkpoint_put) int wheelwork_checkpoint_put(const void *buf, unsigned len);

/* Reads a value, or -44; writes its version to `version` unless that is NULL. */
WHEELWORK_IMPORT(kv_get) int wheelwork_kv_get(const char *bucket, unsigned bucket_len, const char *key, unsigned key_len, void *buf, unsigned cap, unsigned long long *version);

/* Sets a value and returns its version. */
WHEELWORK_IMPORT(kv_put) long long wheelwork_kv_put(const char *bucket, unsigned bucket_len, const char *key, unsigned key_len, const void *buf, unsigned len);

/* Sets a value if the entry has the version `expect`, 0 for none; -20 if not. */
WHEELWORK_IMPORT(kv_cas) long long wheelwork_kv_cas(const char *bucket, unsigned bucket_len, const char *key, unsigned key_len, const void *buf, unsigned len, long long expect);

/* Removes an entry that has the version `expect`, -1 for any. */
WHEELWORK_IMPORT(kv_delete) int wheelwork_kv_delete(const char *bucket, unsigned bucket_len, const char *key, unsigned key_len, long long expect);

/* Makes a run: spec is JSON, {"job":"name","input":"…"}; the run's id goes to `id`. */
WHEELWORK_IMPORT(job_enqueue) int wheelwork_job_enqueue(const char *spec, unsigned spec_len, char *id, unsigned cap);

/* Adds parts to the run: for each a little-endian u32 length, then its input. */
WHEELWORK_IMPORT(map) int wheelwork_map(const void *list, unsigned len);

/* Reads a secret, or -44. */
WHEELWORK_IMPORT(secret_get) int wheelwork_secret_get(const char *name, unsigned name_len, void *buf, unsigned cap);

/* Sends an HTTP request, head as JSON, and returns a handle. */
WHEELWORK_IMPORT(http_send) int wheelwork_http_send(const char *head, unsigned head_len, const void *body, unsigned body_len);

/* The response's head as JSON. */
WHEELWORK_IMPORT(http_head) int wheelwork_http_head(int handle, void *buf, unsigned cap);

/* Reads on in the response's body; 0 at its end. */
WHEELWORK_IMPORT(http_recv) int wheelwork_http_recv(int handle, void *buf, unsigned cap);

/* Gives a handle back. */
WHEELWORK_IMPORT(http_close) int wheelwork_http_close(int handle);

/* Adds to a counter (kind 0), sets a gauge (1), records into a histogram (2). */
WHEELWORK_IMPORT(metric_add) int wheelwork_metric_add(const char *name, unsigned name_len, int kind, double value);

/* In wheelwork_run: 1 there is a task, 0 none yet, 2 there are no more. */
WHEELWORK_IMPORT(job_next) int wheelwork_job_next(int timeout_ms);

/* In wheelwork_run: ends the open task with that status. */
WHEELWORK_IMPORT(job_done) int wheelwork_job_done(int status);

#ifdef __cplusplus
}
#endif

#endif
