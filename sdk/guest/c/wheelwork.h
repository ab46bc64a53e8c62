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

/* Goes before the definition: WHEELWORK_EXPORT int wheelwork_handle(int handler) { … } */
#define WHEELWORK_EXPORT __attribute__((export_name("wheelwork_handle")))

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

#ifdef __cplusplus
}
#endif

#endif
