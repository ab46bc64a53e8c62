/* Greets whoever the input names. */
#include "wheelwork.h"

#define TEXT(s) (s), (sizeof(s) - 1)

enum { MAX_NAME = 200 };

WHEELWORK_EXPORT int wheelwork_handle(int handler) {
	char name[MAX_NAME];
	(void)handler;

	int len = wheelwork_input_read(0, name, sizeof name);
	if (len > MAX_NAME) {
		wheelwork_fail(WHEELWORK_PERMANENT, 0, TEXT("name_too_long"), TEXT("the name is longer than 200 bytes"));
		return WHEELWORK_PERMANENT;
	}
	while (len > 0 && (name[len - 1] == '\n' || name[len - 1] == ' '))
		len--;
	if (len == 0) {
		wheelwork_fail(WHEELWORK_PERMANENT, 0, TEXT("no_name"), TEXT("the input is empty: give a name"));
		return WHEELWORK_PERMANENT;
	}
	wheelwork_log(WHEELWORK_INFO, TEXT("greeting"));
	wheelwork_output_write(TEXT("hello "));
	wheelwork_output_write(name, (unsigned)len);
	wheelwork_output_write(TEXT("\n"));
	return WHEELWORK_OK;
}
