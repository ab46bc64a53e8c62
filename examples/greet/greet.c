//go:build ignore

/* greet: a handler in C that greets whoever its input names, tells what it does
 * in the log, and reports progress. It needs no library, so the module is tiny. */
#include "../../sdk/guest/c/wheelwork.h"

#define TEXT(s) (s), (sizeof(s) - 1)

/* The longest name that is greeted, in bytes. */
enum { MAX_NAME = 200 };

static unsigned append(char *to, unsigned at, const char *from, unsigned len) {
	for (unsigned i = 0; i < len; i++)
		to[at + i] = from[i];
	return at + len;
}

/* trim returns the length of `s` without line breaks and blanks at its end. */
static unsigned trim(const char *s, unsigned len) {
	while (len > 0 && (s[len - 1] == '\n' || s[len - 1] == '\r' || s[len - 1] == ' '))
		len--;
	return len;
}

WHEELWORK_EXPORT int wheelwork_handle(int handler) {
	char name[MAX_NAME], attempt[12], line[MAX_NAME + 64];
	(void)handler;

	wheelwork_progress(0, 3, TEXT("reading the input"));
	int total = wheelwork_input_read(0, name, sizeof name);
	if (total > (int)sizeof name) {
		wheelwork_fail(WHEELWORK_PERMANENT, 0, TEXT("name_too_long"), TEXT("the name is longer than 200 bytes"));
		return WHEELWORK_PERMANENT;
	}
	unsigned len = trim(name, (unsigned)total);
	if (len == 0)
		len = append(name, 0, TEXT("world"));

	int digits = wheelwork_param_get(TEXT("attempt"), attempt, sizeof attempt);
	unsigned n = append(line, 0, TEXT("attempt "));
	if (digits > 0 && digits <= (int)sizeof attempt)
		n = append(line, n, attempt, (unsigned)digits);
	wheelwork_log(WHEELWORK_INFO, line, n);

	wheelwork_progress(1, 3, TEXT("greeting"));
	n = append(line, 0, TEXT("greeting "));
	n = append(line, n, name, len);
	wheelwork_log(WHEELWORK_INFO, line, n);

	n = append(line, 0, TEXT("Hello, "));
	n = append(line, n, name, len);
	n = append(line, n, TEXT("!\n"));
	wheelwork_output_write(line, n);

	wheelwork_log(WHEELWORK_INFO, TEXT("done"));
	wheelwork_progress(3, 3, TEXT("done"));
	return WHEELWORK_OK;
}
