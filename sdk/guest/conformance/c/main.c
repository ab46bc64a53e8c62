//go:build ignore

/* The conformance handler in C; see ../README.md for what each case does. */
#include "wheelwork.h"

#define TEXT(s) (s), (sizeof(s) - 1)

static char buf[4096], name[128];

static unsigned length(const char *s) {
	unsigned n = 0;
	while (s[n] != 0)
		n++;
	return n;
}

static int equal(const char *a, unsigned len, const char *b) {
	if (len != length(b))
		return 0;
	for (unsigned i = 0; i < len; i++)
		if (a[i] != b[i])
			return 0;
	return 1;
}

static void put(const char *s) { wheelwork_output_write(s, length(s)); }

static void put_number(unsigned long long v) {
	char digits[24];
	unsigned at = sizeof digits;
	do {
		digits[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v > 0);
	wheelwork_output_write(digits + at, sizeof digits - at);
}

static void put_hex(unsigned long long v, int digits) {
	for (int i = digits - 1; i >= 0; i--)
		wheelwork_output_write(&"0123456789abcdef"[(v >> (4 * i)) & 15], 1);
}

/* put_error writes what a function answered. */
static void put_error(long long n) {
	if (n == -WHEELWORK_ENOENT)
		put("no entry\n");
	else if (n == -WHEELWORK_ECONFLICT)
		put("conflict\n");
	else if (n == -WHEELWORK_ENOTCAPABLE)
		put("not granted\n");
	else {
		put("error ");
		put_number((unsigned long long)-n);
		put("\n");
	}
}

static int echo(void) {
	long long all = wheelwork_input_len();
	for (long long off = 0; off < all;) {
		int rest = wheelwork_input_read(off, buf, sizeof buf);
		unsigned n = rest < (int)sizeof buf ? (unsigned)rest : sizeof buf;
		wheelwork_output_write(buf, n);
		off += n;
	}
	return WHEELWORK_OK;
}

static int params(void) {
	static const char *const names[] = {"run_id", "app", "job", "attempt", "max_attempts", "GREETING", "LONG", "missing"};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		int n = wheelwork_param_get(names[i], length(names[i]), buf, sizeof buf);
		put(names[i]);
		if (n < 0) {
			put("!\n");
			continue;
		}
		put("=");
		wheelwork_output_write(buf, (unsigned)n);
		put("\n");
	}
	return WHEELWORK_OK;
}

static int checksum(void) {
	unsigned h = 2166136261u;
	long long all = wheelwork_input_len();
	for (long long off = 0; off < all;) {
		int rest = wheelwork_input_read(off, buf, sizeof buf);
		unsigned n = rest < (int)sizeof buf ? (unsigned)rest : sizeof buf;
		for (unsigned i = 0; i < n; i++)
			h = (h ^ (unsigned char)buf[i]) * 16777619u;
		off += n;
	}
	put_hex(h, 8);
	return WHEELWORK_OK;
}

static int logs(void) {
	wheelwork_log(WHEELWORK_DEBUG, TEXT("fine"));
	wheelwork_log(WHEELWORK_INFO, TEXT("one\ntwo"));
	wheelwork_log(WHEELWORK_WARN, TEXT("beware: ünï"));
	wheelwork_log(WHEELWORK_ERROR, TEXT("漢字"));
	return WHEELWORK_OK;
}

static int random_bytes(void) {
	unsigned char b[16];
	wheelwork_random(b, sizeof b);
	for (unsigned i = 0; i < sizeof b; i++)
		put_hex(b[i], 2);
	return WHEELWORK_OK;
}

static int wait(void) {
	wheelwork_log(WHEELWORK_INFO, TEXT("waiting"));
	while (!wheelwork_cancelled())
		;
	return WHEELWORK_CANCELLED;
}

static int checkpoint(void) {
	int n = wheelwork_checkpoint_get(buf, sizeof buf);
	if (n == -WHEELWORK_ENOENT) {
		if ((n = wheelwork_checkpoint_put(TEXT("step 1"))) != 0)
			put_error(n);
		wheelwork_fail(WHEELWORK_RETRYABLE, 0, TEXT("again"), TEXT("the first attempt stops here"));
		return WHEELWORK_RETRYABLE;
	}
	if (n < 0)
		put_error(n);
	else
		wheelwork_output_write(buf, (unsigned)n);
	return WHEELWORK_OK;
}

static void kv_show(const char *key) {
	unsigned long long version = 0;
	int n = wheelwork_kv_get(TEXT("state"), key, length(key), buf, sizeof buf, &version);
	if (n < 0) {
		put_error(n);
		return;
	}
	wheelwork_output_write(buf, (unsigned)n);
	put(version > 0 ? "\n" : " without a version\n");
}

static int kv(void) {
	long long n;
	kv_show("k");
	long long first = wheelwork_kv_put(TEXT("state"), TEXT("k"), TEXT("one"));
	kv_show("k");
	if ((n = wheelwork_kv_cas(TEXT("state"), TEXT("k"), TEXT("two"), first)) < 0)
		put_error(n);
	if ((n = wheelwork_kv_cas(TEXT("state"), TEXT("k"), TEXT("three"), first)) < 0)
		put_error(n);
	kv_show("k");
	if ((n = wheelwork_kv_delete(TEXT("state"), TEXT("k"), WHEELWORK_ANY_VERSION)) < 0)
		put_error(n);
	kv_show("k");
	if ((n = wheelwork_kv_put(TEXT("other"), TEXT("k"), TEXT("x"))) < 0)
		put_error(n);
	return WHEELWORK_OK;
}

static int http(void) {
	static char head[4200];
	unsigned n = 0;
	for (const char *s = "{\"method\":\"POST\",\"url\":\""; *s; s++)
		head[n++] = *s;
	int url = wheelwork_input_read(0, head + n, 4096);
	n += (unsigned)url;
	for (const char *s = "\",\"headers\":{\"X-Case\":\"http\"}}"; *s; s++)
		head[n++] = *s;
	int handle = wheelwork_http_send(head, n, TEXT("ping"));
	if (handle < 0) {
		put_error(handle);
		return WHEELWORK_OK;
	}
	int size = wheelwork_http_head(handle, buf, sizeof buf);
	if (size < 0)
		put_error(size);
	/* The status comes first and has three digits. */
	wheelwork_output_write(buf, 13);
	put("\n");
	while ((size = wheelwork_http_recv(handle, buf, sizeof buf)) > 0)
		wheelwork_output_write(buf, (unsigned)size);
	wheelwork_http_close(handle);
	return WHEELWORK_OK;
}

static int run_case(void) {
	int n = wheelwork_param_get(TEXT("CASE"), name, sizeof name);
#define IS(s) (n >= 0 && equal(name, (unsigned)n, s))
	if (n < 0 || IS("echo"))
		return echo();
	if (IS("params"))
		return params();
	if (IS("checksum"))
		return checksum();
	if (IS("retryable")) {
		wheelwork_fail(WHEELWORK_RETRYABLE, 1500, TEXT("busy"), TEXT("try later: é"));
		return WHEELWORK_RETRYABLE;
	}
	if (IS("permanent")) {
		wheelwork_fail(WHEELWORK_PERMANENT, 0, TEXT("bad_input"), TEXT("cannot do that"));
		return WHEELWORK_PERMANENT;
	}
	if (IS("logs"))
		return logs();
	if (IS("progress")) {
		wheelwork_progress(1, 4, TEXT("one of four"));
		wheelwork_progress(4, 4, TEXT("all ✓"));
		return WHEELWORK_OK;
	}
	if (IS("cancelled"))
		return wait();
	if (IS("clock")) {
		put_number((unsigned long long)wheelwork_now_ms());
		return WHEELWORK_OK;
	}
	if (IS("random"))
		return random_bytes();
	if (IS("sleep")) {
		wheelwork_sleep(20);
		put("slept");
		return WHEELWORK_OK;
	}
	if (IS("checkpoint"))
		return checkpoint();
	if (IS("kv"))
		return kv();
	if (IS("enqueue")) {
		int size = wheelwork_job_enqueue(TEXT("{\"job\":\"next\",\"input\":\"hello\"}"), buf, sizeof buf);
		if (size < 0)
			put_error(size);
		else
			wheelwork_output_write(buf, (unsigned)size);
		return WHEELWORK_OK;
	}
	if (IS("map")) {
		if ((n = wheelwork_map(TEXT("\1\0\0\0a\0\0\0\0\3\0\0\0ccc"))) < 0)
			put_error(n);
		return WHEELWORK_OK;
	}
	if (IS("secret")) {
		int size = wheelwork_secret_get(TEXT("token"), buf, sizeof buf);
		if (size < 0)
			put_error(size);
		else
			wheelwork_output_write(buf, (unsigned)size);
		return WHEELWORK_OK;
	}
	if (IS("http"))
		return http();
	if (IS("metric")) {
		wheelwork_metric_add(TEXT("orders"), WHEELWORK_COUNTER, 2.5);
		wheelwork_metric_add(TEXT("load"), WHEELWORK_GAUGE, 0.25);
		wheelwork_metric_add(TEXT("size"), WHEELWORK_HISTOGRAM, 7);
		return WHEELWORK_OK;
	}
	wheelwork_fail(WHEELWORK_PERMANENT, 0, TEXT("no_case"), name, (unsigned)n);
	return WHEELWORK_PERMANENT;
}

WHEELWORK_EXPORT int wheelwork_handle(int handler) {
	switch (handler) {
	case 0:
		return run_case();
	case 1:
		put("second");
		return WHEELWORK_OK;
	}
	wheelwork_fail(WHEELWORK_PERMANENT, 0, TEXT("no_handler"), TEXT("there are two"));
	return WHEELWORK_PERMANENT;
}

WHEELWORK_EXPORT_RUN int wheelwork_run(int handler) {
	while (wheelwork_job_next(0) == 1)
		wheelwork_job_done(wheelwork_handle(handler));
	return WHEELWORK_OK;
}
